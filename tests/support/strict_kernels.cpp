// SPDX-License-Identifier: Apache-2.0
// The host's operations on a StrictDevice: each op is put off.
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/strict_device.h"
#include "worker/stage/builtin_stage.h"

namespace weir::test {
namespace {

using stage::ops::Graph, stage::ops::Kernels, stage::ops::Op;

// Ops may run when the stage is gone, so they own what they need.
void put_off(StrictDevice& device, const std::shared_ptr<Kernels>& host, const Op& op) {
  device.enqueue([host, op] { host->run(op); });
}

class StrictGraph final : public Graph {
 public:
  StrictGraph(StrictDevice& device, std::shared_ptr<Kernels> host, std::span<const Op> ops)
      : device_(device), host_(std::move(host)), ops_(ops.begin(), ops.end()) {}
  Status launch() override {
    for (const Op& op : ops_) put_off(device_, host_, op);
    return Unit{};
  }

 private:
  StrictDevice& device_;
  const std::shared_ptr<Kernels> host_;
  const std::vector<Op> ops_;
};

class StrictKernels final : public Kernels {
 public:
  StrictKernels(StrictDevice& device, stage::Precision precision)
      : device_(device), host_(stage::ops::make_host_kernels(precision)) {}

  void run(const Op& op) override { put_off(device_, host_, op); }
  bool makes_graphs() const override { return device_.makes_graphs(); }
  Result<std::unique_ptr<Graph>> make_graph(std::span<const Op> ops) override {
    return std::unique_ptr<Graph>(std::make_unique<StrictGraph>(device_, host_, ops));
  }

 private:
  StrictDevice& device_;
  const std::shared_ptr<Kernels> host_;
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
