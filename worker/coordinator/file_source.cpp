// SPDX-License-Identifier: Apache-2.0
// Reads plans from a file, for training without an operator.
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/coordinator/coordinator.h"
#include "worker/protocol/codec.h"

namespace weir::coordinator {
namespace {

constexpr char kPlanFile[] = "plan file";
constexpr std::chrono::milliseconds kPeriod{200};
constexpr std::size_t kMaxBytes = 1024 * 1024;  // the limit of a ConfigMap

class FileSource final : public PlanSource {
 public:
  explicit FileSource(std::string path) : path_(std::move(path)) {}

  void start(Callbacks callbacks) override {
    callbacks_ = std::move(callbacks);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  void register_members(protocol::Register) override {}
  void report(protocol::Report report) override {
    log_debug(kPlanFile, "report", {{"step", report.step}, {"loss", report.loss}});
  }
  void have(std::uint32_t) override {}

 private:
  void run(const std::stop_token& stop) {
    do {
      look();
    } while (clock_.sleep_until(clock_.now() + kPeriod, stop));
  }

  void look() {
    std::ifstream file(path_, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(file), {});
    if (looked_ && text == last_text_) return;
    looked_ = true;
    last_text_ = text;
    if (text.empty()) return complain("missing or empty");
    if (text.size() > kMaxBytes) return complain("larger than 1 MiB");
    auto plan = protocol::decode_plan(text);
    if (!plan) return complain(plan.error().message);
    if (plan->revision <= last_revision_) {
      return complain("revision " + std::to_string(plan->revision) + " is not above " +
                      std::to_string(last_revision_));
    }
    last_revision_ = plan->revision;
    callbacks_.on_plan(*std::move(plan));
  }

  void complain(const std::string& reason) const {
    log_warn(kPlanFile, "plan file ignored", {{"file", path_}, {"reason", reason}});
  }

  const std::string path_;
  SystemClock clock_;
  Callbacks callbacks_;
  bool looked_ = false;
  std::string last_text_;
  std::uint32_t last_revision_ = 0;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<PlanSource> make_file_source(const std::string& path) {
  return std::make_unique<FileSource>(path);
}

}  // namespace weir::coordinator
