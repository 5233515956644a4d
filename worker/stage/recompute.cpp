// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/recompute.h"

#include <algorithm>
#include <utility>

#include "worker/base/utf8.h"
#include "worker/stage/ops/memory.h"

namespace weir::stage {
namespace {

// Facts of the first forward that the second one needs besides the input: the seed, and the numbers
// of tokens, which lie in buffers of their own.
struct FirstPass {
  std::uint64_t seed;
  std::size_t inputs = 0, targets = 0;
};

class Recomputed final : public Layer {
 public:
  Recomputed(std::unique_ptr<Layer> layer, int sequence) : layer_(std::move(layer)) {
    const LayerInfo& whole = layer_->info();
    const std::int64_t input = layer_->input_bytes_per_sample();
    // The second forward has an output, too, when there is no gradient of the input yet.
    const std::int64_t again = whole.activation_bytes_per_sample - input +
                               std::max<std::int64_t>(0, whole.output_bytes_per_sample - input);
    const std::int64_t tokens = std::int64_t{sequence} * kToken;
    info_ = whole;
    info_.description += ", recomputed";
    info_.kind += "-recomputed";
    info_.activation_bytes_per_sample =
        input + (whole.needs_inputs ? tokens : 0) + (is_last() ? tokens : 0);
    info_.activation_bytes = 0;
    info_.transient_bytes += whole.activation_bytes;
    info_.transient_bytes_per_sample += again;
    info_.split_transient_bytes_per_sample += again;
  }

  const LayerInfo& info() const override { return info_; }
  const std::vector<ParameterSpec>& parameters() const override { return layer_->parameters(); }
  std::int64_t input_bytes_per_sample() const override { return layer_->input_bytes_per_sample(); }
  Status attach(const std::vector<ops::Element*>& value,
                const std::vector<float*>& gradient) override {
    return layer_->attach(value, gradient);
  }
  bool adds_gradients() const override { return layer_->adds_gradients(); }
  bool has_initial_values() const override { return layer_->has_initial_values(); }
  Status set_initial(std::size_t parameter, std::span<float> values) override {
    return layer_->set_initial(parameter, values);
  }

  Result<Forward> forward(const Pass& pass, const device::Buffer& input) const override {
    Pass first = pass;
    first.keeps = false;
    WEIR_TRY(Forward result, layer_->forward(first, input));
    result.activations = KeptActivations{};
    if (!pass.keeps) return result;
    FirstPass kept{.seed = pass.seed};
    std::vector<device::Buffer>& buffers = result.activations.buffers;
    buffers.push_back(input);
    if (info_.needs_inputs) {
      kept.inputs = pass.tokens.inputs.size();
      WEIR_OK(keep(pass, pass.tokens.inputs, buffers));
    }
    if (is_last()) {
      kept.targets = pass.tokens.targets.size();
      WEIR_OK(keep(pass, pass.tokens.targets, buffers));
    }
    result.activations.owner = std::make_shared<FirstPass>(kept);
    return result;
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer& output_gradient) const override {
    WEIR_TRY(const KeptActivations whole, forward_again(pass, activations));
    return layer_->backward(pass, whole, output_gradient);
  }
  Result<InputGradient> backward_input(const Pass& pass, KeptActivations activations,
                                       const device::Buffer& output_gradient) const override {
    WEIR_TRY(KeptActivations whole, forward_again(pass, activations));
    return layer_->backward_input(pass, std::move(whole), output_gradient);
  }
  Status backward_weights(const Pass& pass, const KeptActivations& held) const override {
    return layer_->backward_weights(pass, held);
  }

 private:
  static constexpr std::int64_t kToken = sizeof(std::int32_t);

  bool is_last() const { return info_.output_bytes_per_sample == 0; }
  static Status keep(const Pass& pass, std::span<const std::int32_t> tokens,
                     std::vector<device::Buffer>& buffers) {
    WEIR_TRY(device::Buffer copy,
             allocate_values(pass.device, 1, static_cast<std::int64_t>(tokens.size()), kToken));
    pass.ops.run(ops::Copy{copy.data(), tokens.data(), tokens.size_bytes()});
    buffers.push_back(std::move(copy));
    return Unit{};
  }
  Result<KeptActivations> forward_again(const Pass& pass, const KeptActivations& kept) const {
    const auto& first = *static_cast<const FirstPass*>(kept.owner.get());
    Pass again = pass;
    again.seed = first.seed;
    std::size_t next = 1;
    if (first.inputs > 0) {
      again.tokens.inputs = {kept.buffers[next++].as<std::int32_t>(), first.inputs};
    }
    if (first.targets > 0) {
      again.tokens.targets = {kept.buffers[next].as<std::int32_t>(), first.targets};
    }
    WEIR_TRY(Forward result, layer_->forward(again, kept.buffers[0]));
    return std::move(result.activations);
  }

  const std::unique_ptr<Layer> layer_;
  LayerInfo info_;
};

Result<std::size_t> index_of(const Layers& layers, std::string_view id) {
  const auto found = std::ranges::find(
      layers, id, [](const auto& layer) -> std::string_view { return layer->info().id; });
  if (found != layers.end()) return static_cast<std::size_t>(found - layers.begin());
  return invalid("recompute", "the model has no layer " + in_quotes(id) + "; its layers are " +
                                  layers.front()->info().id + " to " + layers.back()->info().id);
}

struct Range {
  std::size_t first, last;
};

// An id may contain "-", too, so the whole text is tried first, then each "-" as a range.
Result<Range> range_of(const Layers& layers, std::string_view text) {
  Result<std::size_t> one = index_of(layers, text);
  if (one) return Range{*one, *one};
  for (std::size_t at = text.find('-'); at != text.npos; at = text.find('-', at + 1)) {
    const Result<std::size_t> first = index_of(layers, text.substr(0, at));
    const Result<std::size_t> last = index_of(layers, text.substr(at + 1));
    if (!first || !last) continue;
    if (*first > *last) return invalid("recompute", in_quotes(text) + " ends before it begins");
    return Range{*first, *last};
  }
  return std::move(one).error();
}

}  // namespace

Status recompute(Layers& layers, const std::string& choice, int sequence) {
  if (choice == "none") return Unit{};
  std::vector<bool> chosen(layers.size(), choice == "all");
  std::string_view rest = choice;
  if (choice == "all") rest = {};
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    WEIR_TRY(const Range range, range_of(layers, rest.substr(0, comma)));
    for (std::size_t i = range.first; i <= range.last; ++i) chosen[i] = true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!chosen[i] || layers[i]->input_bytes_per_sample() == 0) continue;
    layers[i] = std::make_unique<Recomputed>(std::move(layers[i]), sequence);
  }
  return Unit{};
}

}  // namespace weir::stage
