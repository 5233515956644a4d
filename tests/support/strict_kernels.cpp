// SPDX-License-Identifier: Apache-2.0
// The host's operations on a StrictDevice: each call is put off with its arguments.
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/strict_device.h"
#include "worker/stage/builtin_stage.h"
#include "worker/stage/ops/calls.h"

namespace weir::test {
namespace {

using stage::ops::Call, stage::ops::Graph, stage::ops::Kernels;
using Calls = std::vector<std::shared_ptr<const Call>>;

// Ops may run when the stage is gone, so they own what they need.
void put_off(StrictDevice& device, const std::shared_ptr<Kernels>& host, const Calls& calls) {
  for (const auto& call : calls) device.enqueue([host, call] { call->make(*host); });
}

class StrictGraph final : public Graph {
 public:
  StrictGraph(StrictDevice& device, std::shared_ptr<Kernels> host, Calls calls)
      : device_(device), host_(std::move(host)), calls_(std::move(calls)) {}
  Status launch() override {
    put_off(device_, host_, calls_);
    return Unit{};
  }

 private:
  StrictDevice& device_;
  const std::shared_ptr<Kernels> host_;
  const Calls calls_;
};

class StrictKernels final : public stage::ops::CallRecorder {
 public:
  StrictKernels(StrictDevice& device, stage::Precision precision)
      : CallRecorder([this](std::unique_ptr<Call> call) { take(std::move(call)); }),
        device_(device),
        host_(stage::ops::make_host_kernels(precision)) {}

  bool makes_graphs() const override { return device_.makes_graphs(); }
  Result<std::unique_ptr<Graph>> make_graph(const std::function<void()>& ops) override {
    capturing_ = true;
    ops();
    capturing_ = false;
    return std::unique_ptr<Graph>(
        std::make_unique<StrictGraph>(device_, host_, std::exchange(captured_, {})));
  }

 private:
  void take(std::shared_ptr<const Call> call) {
    if (capturing_) {
      captured_.push_back(std::move(call));
    } else {
      put_off(device_, host_, {std::move(call)});
    }
  }

  StrictDevice& device_;
  const std::shared_ptr<Kernels> host_;
  bool capturing_ = false;
  Calls captured_;
};

}  // namespace

std::unique_ptr<stage::ops::Kernels> make_strict_kernels(StrictDevice& device,
                                                         stage::Precision precision) {
  return std::make_unique<StrictKernels>(device, precision);
}

Result<std::unique_ptr<stage::Stage>> make_strict_stage(const stage::Model& model, int first_layer,
                                                        int last_layer, StrictDevice& device,
                                                        stage::GraphUse graphs) {
  return stage::make_builtin_stage(model, first_layer, last_layer, device,
                                   make_strict_kernels(device, model.options.precision), graphs);
}

}  // namespace weir::test
