// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/foreign/foreign_layer.h"

#include <utility>
#include <vector>

#include "worker/base/check.h"
#include "worker/base/log.h"
#include "worker/base/random.h"
#include "worker/stage/foreign/call.h"

namespace weir::stage {
namespace {

// Drops what the layer keeps under it, once. Exceptions stop here: a destructor cannot fail.
struct Ticket {
  Ticket(const weir_layers& of, void* layer, std::uint64_t id)
      : table(of), bound(layer), number(id) {}
  ~Ticket() {
    try {
      table.drop(table.self, bound, number);
    } catch (...) {
      log_warn("stage", "the model's function drop threw an exception");
    }
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  const weir_layers& table;
  void* const bound;
  const std::uint64_t number;
};

class ForeignLayer final : public Layer {
 public:
  ForeignLayer(const weir_layers& table, int index, const LayerDescription& description)
      : table_(table), index_(index), of_(description) {
    who_ = "layer " + of_.info.id;
    if (of_.info.kind != of_.info.id) who_ += " (" + of_.info.kind + ")";
  }
  ~ForeignLayer() override {
    if (bound_ == nullptr) return;
    try {
      table_.unbind(table_.self, bound_);
    } catch (...) {
      log_warn("stage", "the model's function unbind threw an exception");
    }
  }

  const LayerInfo& info() const override { return of_.info; }
  const std::vector<ParameterSpec>& parameters() const override { return of_.parameters; }
  std::int64_t input_bytes_per_sample() const override { return of_.input_bytes_per_sample; }

  Status attach(const std::vector<ops::Element*>& value,
                const std::vector<float*>& gradient) override {
    std::vector<weir_parameter> parameters;
    for (std::size_t i = 0; i < value.size(); ++i) {
      parameters.push_back({.value = value[i],
                            .gradient = gradient[i],
                            .count = static_cast<std::uint64_t>(of_.parameters[i].count())});
    }
    return call(table_, who_ + ": bind", [&] {
      return table_.bind(table_.self, index_, parameters.data(),
                         static_cast<std::uint32_t>(parameters.size()), &bound_);
    });
  }

  Status set_initial(std::size_t parameter, std::span<float> values) override {
    return call(table_, who_ + ": initial values of " + of_.parameters[parameter].name, [&] {
      return table_.initial(table_.self, bound_, static_cast<std::uint32_t>(parameter),
                            values.data(), values.size());
    });
  }
  bool has_initial_values() const override { return true; }
  bool adds_gradients() const override { return true; }  // as weir_layers.h says

  Result<Forward> forward(const Pass& pass, const device::Buffer& input) const override {
    Forward result;
    const bool is_last = of_.info.output_bytes_per_sample == 0;
    if (!is_last) {
      WEIR_TRY(result.output,
               allocate_values(pass.device, pass.samples, of_.info.output_bytes_per_sample, 1));
    }
    const std::uint64_t ticket = pass.keeps ? ++tickets_ : 0;
    const weir_forward call_of{
        .size = sizeof(weir_forward),
        .samples = pass.samples,
        .step = pass.step,
        .seed = mix_seed(pass.seed, static_cast<std::uint64_t>(index_)),
        .ticket = ticket,
        .training = pass.training ? 1 : 0,
        .loss_scale = pass.loss_scale,
        .inputs = of_.info.needs_inputs ? pass.tokens.inputs.data() : nullptr,
        .targets = is_last ? pass.tokens.targets.data() : nullptr,
        .input = input.data(),
        .input_bytes = input.size(),
        .output = result.output.data(),
        .output_bytes = result.output.size(),
        .loss = is_last ? pass.loss : nullptr};
    WEIR_OK(call(table_, who_, [&] { return table_.forward(table_.self, bound_, &call_of); }));
    if (!pass.keeps) return result;
    result.activations.buffers.push_back(input);
    result.activations.others_bytes =
        pass.samples * (of_.info.activation_bytes_per_sample - of_.input_bytes_per_sample) +
        of_.info.activation_bytes;
    result.activations.owner = std::make_shared<Ticket>(table_, bound_, ticket);
    return result;
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer& output_gradient) const override {
    device::Buffer gradient;
    if (of_.input_bytes_per_sample > 0) {
      WEIR_TRY(gradient, allocate_values(pass.device, pass.samples, of_.input_bytes_per_sample, 1));
    }
    const weir_backward call_of{
        .size = sizeof(weir_backward),
        .samples = pass.samples,
        .ticket = static_cast<const Ticket*>(activations.owner.get())->number,
        .output_gradient = output_gradient.data(),
        .output_gradient_bytes = output_gradient.size(),
        .input_gradient = gradient.data(),
        .input_gradient_bytes = gradient.size()};
    WEIR_OK(call(table_, who_, [&] { return table_.backward(table_.self, bound_, &call_of); }));
    return gradient;
  }

 private:
  const weir_layers& table_;
  const int index_;
  const LayerDescription of_;
  std::string who_;
  void* bound_ = nullptr;
  mutable std::uint64_t tickets_ = 0;
};

}  // namespace

std::unique_ptr<Layer> make_foreign_layer(const weir_layers& table, int index,
                                          const LayerDescription& description) {
  return std::make_unique<ForeignLayer>(table, index, description);
}

}  // namespace weir::stage
