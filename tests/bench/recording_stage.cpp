// SPDX-License-Identifier: Apache-2.0
// How far the models of replicas are apart, for E9: takes the place of
// worker/emulate/emulated_stage.cpp in the workers of this bench. The emulated stage is that one,
// around a stage that writes down its parameters whenever they have changed: after its own update,
// and when the next step begins, that is after the average. Into the file that
// WEIR_BENCH_PARAMETERS names; read by disagreement.cpp. Every kStride-th parameter, so that 16
// workers on two cores are not disturbed by it.
#define emulated_stage unrecorded_stage
#include "worker/emulate/emulated_stage.cpp"  // NOLINT(bugprone-suspicious-include)
#undef emulated_stage

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tests/bench/disagreement.h"
#include "worker/device/host_view.h"
#include "worker/emulate/stage_around.h"

namespace weir::emulate {
namespace {

class RecordingStage final : public StageAround {
 public:
  RecordingStage(std::unique_ptr<Stage> inner, const char* file)
      : StageAround(std::move(inner)), file_(std::fopen(file, "ab"), &std::fclose) {
    WEIR_CHECK(file_ != nullptr, "the file for parameters can be written");
  }

  void begin_step(std::int64_t step, int step_samples) override {
    StageAround::begin_step(step, step_samples);
    record();
  }
  void optimizer_step() override {
    StageAround::optimizer_step();
    record();
  }

 private:
  void record() {
    kept_.clear();
    std::size_t next = 0;  // of all parameters in a row
    for (const Parameter& one : inner().parameters()) {
      const auto view = device::HostView<float>::of(inner().device(), one.value);
      WEIR_CHECK(view.ok(), "parameters can be read");
      const std::span<const float> values = view->values();
      for (; next < values.size(); next += bench::kStride) kept_.push_back(values[next]);
      next -= values.size();
    }
    const bench::RecordHead head{.seconds = to_seconds(clock_.now().time_since_epoch()),
                                 .count = kept_.size()};
    std::fwrite(&head, sizeof head, 1, file_.get());
    std::fwrite(kept_.data(), sizeof(float), kept_.size(), file_.get());
    std::fflush(file_.get());
  }

  SystemClock clock_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::vector<float> kept_;
};

}  // namespace

std::unique_ptr<Stage> emulated_stage(std::unique_ptr<Stage> inner, StageTimes times,
                                      std::shared_ptr<stage::Lateness> lateness) {
  if (const char* file = std::getenv("WEIR_BENCH_PARAMETERS"); file != nullptr) {
    inner = std::make_unique<RecordingStage>(std::move(inner), file);
  }
  return unrecorded_stage(std::move(inner), std::move(times), std::move(lateness));
}

}  // namespace weir::emulate
