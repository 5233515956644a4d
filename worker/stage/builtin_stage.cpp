// SPDX-License-Identifier: Apache-2.0
// A Stage of built-in layers: keeps parameters, activations by micro-batch, and the losses.
#include "worker/stage/builtin_stage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/clock.h"
#include "worker/base/random.h"
#include "worker/stage/graphs.h"
#include "worker/stage/parameters.h"
#include "worker/stage/registry.h"
#include "worker/stage/stage.h"

namespace weir::stage {
namespace {

using device::Buffer;

// One micro-batch between its forward and its backward, or between the parts of a split backward.
struct InFlight {
  int samples = 0;
  std::vector<KeptActivations> activations;  // by layer of this stage
};

// A tie of the model, as far as its layers are here.
struct TiedEnds {
  struct End {
    std::size_t layer, parameter;
  };
  std::optional<End> first, last;
};

struct Loss {
  double sum = 0;  // over the tokens
  int samples = 0;
};

class BuiltinStage final : public Stage {
 public:
  BuiltinStage(const ModelOptions& options, Layers layers, std::vector<LayerParameters> parameters,
               std::vector<TiedEnds> ties, device::Device& device,
               std::unique_ptr<ops::Kernels> kernels, Buffer loss_memory, GraphUse graphs)
      : options_(options),
        parameters_(std::move(parameters)),
        layers_(std::move(layers)),
        device_(device),
        ops_(std::move(kernels)),
        loss_memory_(std::move(loss_memory)),
        ties_(std::move(ties)) {
    if (graphs != GraphUse::kOff && ops_->makes_graphs()) {
      graphs_ = std::make_unique<GraphRunner>(*ops_, device, clock_, graphs);
    }
  }

  Result<Buffer> forward(int micro_batch, const Buffer& input, const Tokens& tokens) override;
  Result<Buffer> backward(int micro_batch, const Buffer& output_gradient) override;
  Result<Buffer> backward_input(int micro_batch, const Buffer& output_gradient) override;
  Status backward_weights(int micro_batch) override;
  Result<Evaluated> evaluate(const Buffer& input, const Tokens& tokens) override;
  void begin_evaluation() override {
    for (auto& layer : parameters_) layer.refresh(*ops_);
  }

  Status warm_up(int samples) override;
  void begin_step(std::int64_t step, int step_samples) override {
    for (auto& layer : parameters_) layer.zero_sums(*ops_);
    prepare_step(step, step_samples);
  }
  // Both ends of a tie have the sum of both, which must count once.
  void resume_step(std::int64_t step, int step_samples) override {
    for (const TiedEnds& tie : ties_) {
      if (tie.last) parameters_[tie.last->layer].zero_sums(*ops_, tie.last->parameter);
    }
    prepare_step(step, step_samples);
  }
  void prepare_step(std::int64_t step, int step_samples) {
    WEIR_CHECK(step_samples > 0, "a step has samples");
    step_ = step;
    step_samples_ = step_samples;
    last_backward_ = -1;
    last_weights_ = -1;
    in_flight_.clear();  // left by an abandoned step
    between_.clear();
    losses_.clear();
    hook_ = nullptr;
    rounded_ = false;
    joined_ = false;
    gradient_scale_ = 1;
    for (auto& layer : parameters_) layer.refresh(*ops_);
  }

  void optimizer_step() override {
    join_ties();
    ops::AdamWStep step = adamw_step(options_, step_);
    step.gradient_scale = gradient_scale_;
    for (auto& layer : parameters_) layer.update(*ops_, gradient_in(), step);
    // The time of the update belongs to this call. A failure shows again at the next forward.
    static_cast<void>(device_.synchronize());
  }

  double loss() const override {
    double sum = 0;
    std::int64_t samples = 0;
    for (const auto& [micro_batch, loss] : losses_) {
      sum += loss.sum;
      samples += loss.samples;
    }
    if (samples == 0) return std::numeric_limits<double>::quiet_NaN();
    return sum / static_cast<double>(samples * options_.sequence);
  }

  std::int64_t output_bytes(int samples) const override {
    return samples * layers_.back()->info().output_bytes_per_sample;
  }
  std::int64_t input_bytes(int samples) const override {
    return samples * layers_.front()->input_bytes_per_sample();
  }
  bool needs_inputs() const override {
    const auto reads = [](const auto& layer) {
      return layer->input_bytes_per_sample() == 0 || layer->info().needs_inputs;
    };
    return std::ranges::any_of(layers_, reads);
  }
  std::int64_t activation_bytes() const override {
    std::int64_t total = 0;
    for (const auto* kept : {&in_flight_, &between_}) {
      for (const auto& [micro_batch, held] : *kept) {
        for (const auto& activations : held.activations) total += activations.bytes();
      }
    }
    return total;
  }
  device::Device& device() override { return device_; }
  std::vector<Parameter> parameters() override {
    std::vector<Parameter> list;
    for (const auto& layer : parameters_) layer.append_to(list);
    return list;
  }

  std::vector<LayerSum> layer_sums() override {
    std::vector<LayerSum> list;
    for (const auto& layer : parameters_) list.push_back({layer.sums(), layer.gradient()});
    return list;
  }
  std::vector<TiedSum> tied_sums() override {
    std::vector<TiedSum> list;
    for (const TiedEnds& tie : ties_) {
      for (const auto& end : {tie.first, tie.last}) {
        if (end) list.push_back({end->layer, parameters_[end->layer].sums(end->parameter)});
      }
    }
    return list;
  }
  void join_ties() override {
    if (joined_) return;
    for (const TiedEnds& tie : ties_) {
      if (!tie.first || !tie.last) continue;
      const auto first = parameters_[tie.first->layer].sums(tie.first->parameter);
      const auto last = parameters_[tie.last->layer].sums(tie.last->parameter);
      ops_->run(ops::JoinSums{first.size(), first.data(), last.data()});
    }
    joined_ = true;
  }
  void finish_gradients() override {
    if (rounded_) return;
    join_ties();
    for (auto& layer : parameters_) layer.round_sums(*ops_);
    rounded_ = true;
  }
  Result<std::vector<double>> gradient_squares() override;
  void scale_gradients(float factor) override { gradient_scale_ = factor; }
  void gradients_are_set() override { rounded_ = true; }
  void on_layer_summed(std::function<void(std::size_t index)> hook) override {
    hook_ = std::move(hook);
  }
  std::int64_t graph_launches() const override { return graphs_ ? graphs_->launches() : 0; }
  std::vector<double> loss_sums() const override {
    std::vector<double> sums;
    for (const auto& [micro_batch, loss] : losses_) sums.push_back(loss.sum);
    return sums;
  }
  double mean_loss(std::span<const double> sums) const override {
    double sum = 0;
    for (const double one : sums) sum += one;
    return sum / static_cast<double>(std::int64_t{step_samples_} * options_.sequence);
  }

 private:
  // Without other replicas nobody needs the rounded gradient: its readers round the sums.
  LayerParameters::GradientIn gradient_in() const {
    return rounded_ ? LayerParameters::GradientIn::kValues : LayerParameters::GradientIn::kSums;
  }
  bool is_last() const { return layers_.back()->info().output_bytes_per_sample == 0; }
  Pass pass(ops::Kernels& ops, std::size_t layer, int samples, const Tokens& tokens,
            bool training = true) {
    const double step_tokens = static_cast<double>(step_samples_) * options_.sequence;
    return {.device = device_,
            .ops = ops,
            .value = parameters_[layer].values(),
            .gradient = parameters_[layer].gradients(),
            .samples = samples,
            .step = step_,
            .seed = mix_seed(mix_seed(options_.seed, static_cast<std::uint64_t>(step_)),
                             static_cast<std::uint64_t>(tokens.first_sample)),
            .training = training,
            .keeps = training,
            .tokens = tokens,
            .loss_scale = static_cast<float>(1 / step_tokens),
            .loss = loss_memory_ ? loss_memory_.as<double>() : &loss_};
  }
  // Tokens come from the user's data, so a wrong one is an error and no broken invariant.
  Status check_tokens(const Tokens& tokens) const {
    const auto positions =
        static_cast<std::size_t>(tokens.samples) * static_cast<std::size_t>(options_.sequence);
    WEIR_CHECK(!needs_inputs() || tokens.inputs.size() == positions, "an input for each position");
    for (const auto list : {tokens.inputs, tokens.targets}) {
      for (const auto token : list) {
        if (token >= 0 && token < options_.vocabulary) continue;
        return Error{Code::kInvalid, "token " + std::to_string(token) +
                                         " is outside the vocabulary of " +
                                         std::to_string(options_.vocabulary)};
      }
    }
    return Unit{};
  }

  // The kernels for the ops of a forward or backward, and the end of the pass. With a hook, ops
  // must be enqueued as soon as they are called, so no graph is used.
  ops::Kernels& begin_pass(PassKind kind) {
    return graphs_ && !hook_ ? graphs_->begin(kind) : *ops_;
  }
  Status finish_pass() { return graphs_ && !hook_ ? graphs_->run() : finish(); }
  Status finish() {
    WEIR_TRY([[maybe_unused]] const Unit enqueued, ops_->status());
    return device_.synchronize();
  }
  InFlight begin_backward(int micro_batch, const Buffer& output_gradient);
  using Part = LayerParameters::Part;
  void begin_gradients(ops::Kernels& ops, std::size_t layer, Part part) {
    if (layers_[layer]->adds_gradients()) parameters_[layer].zero_gradients(ops, part);
  }
  template <class Take>
  Result<Buffer> run_layers(ops::Kernels& ops, const Buffer& input, const Tokens& tokens,
                            bool training, Take take);
  // On the last stage, after a forward.
  double loss_of_pass() const { return loss_memory_ ? *loss_memory_.as<double>() : loss_; }
  // Tokens where ops can read them: inputs and targets in one copy, for which nobody waits before
  // the pass ends. `memory` owns what ops read.
  Result<Tokens> on_device(const Tokens& tokens, Buffer& memory) {
    const std::size_t bytes = tokens.inputs.size_bytes() + tokens.targets.size_bytes();
    if (device_.is_host() || bytes == 0) return tokens;
    staged_tokens_ = device_.allocate_staging(bytes);  // the pass before has ended
    memory = device_.allocate(bytes);
    if (!staged_tokens_ || !memory) return no_memory(device_, bytes);
    Tokens moved = tokens;
    std::size_t at = 0;
    for (auto* list : {&moved.inputs, &moved.targets}) {
      std::ranges::copy(*list, staged_tokens_.as<std::int32_t>() + at);
      *list = {memory.as<std::int32_t>() + at, list->size()};
      at += list->size();
    }
    WEIR_OK(device_.copy(memory.data(), staged_tokens_.data(), bytes));
    return moved;
  }

  const ModelOptions options_;
  std::vector<LayerParameters> parameters_;
  const Layers layers_;  // they end before their parameters, and after all activations
  device::Device& device_;
  std::unique_ptr<ops::Kernels> ops_;
  const SystemClock clock_;
  std::unique_ptr<GraphRunner> graphs_;  // null if no graphs are used
  const Buffer loss_memory_;             // staging memory, unless the device is the host
  Buffer staged_tokens_;                 // of the pass that runs
  double loss_ = 0;                      // used on the host
  std::int64_t step_ = 0;
  int step_samples_ = 0;  // 0 before begin_step
  int last_backward_ = -1, last_weights_ = -1;
  const std::vector<TiedEnds> ties_;
  bool joined_ = false;   // sums of ties with both ends here
  bool rounded_ = false;  // the gradients are those of the step
  float gradient_scale_ = 1;
  std::function<void(std::size_t)> hook_;
  std::map<int, InFlight> in_flight_;
  std::map<int, InFlight> between_;  // the parts of a split backward
  std::map<int, Loss> losses_;       // by micro-batch, and summed in that order
};

// Copies the sums of all layers to the host at once.
Result<std::vector<double>> BuiltinStage::gradient_squares() {
  join_ties();
  const std::size_t bytes = parameters_.size() * sizeof(double);
  Buffer sums = device_.allocate(bytes);
  if (!sums) return no_memory(device_, bytes);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].sum_squares(*ops_, gradient_in(), sums.as<double>() + i);
  }
  WEIR_TRY([[maybe_unused]] const Unit enqueued, ops_->status());
  WEIR_TRY(const Buffer staged, device_.download(std::move(sums)));
  const auto* values = staged.as<double>();
  return std::vector<double>(values, values + parameters_.size());
}

Result<Buffer> BuiltinStage::forward(int micro_batch, const Buffer& input, const Tokens& tokens) {
  WEIR_CHECK(step_samples_ > 0, "begin_step comes before forward");
  WEIR_CHECK(!in_flight_.contains(micro_batch), "one forward of a micro-batch in a step");
  InFlight held{.samples = tokens.samples};
  ops::Kernels& ops = begin_pass({.part = PassPart::kForward, .samples = tokens.samples});
  WEIR_TRY(Buffer output, run_layers(ops, input, tokens, true, [&](KeptActivations activations) {
             held.activations.push_back(std::move(activations));
           }));
  WEIR_TRY([[maybe_unused]] const Unit done, finish_pass());
  if (is_last()) losses_[micro_batch] = {.sum = loss_of_pass(), .samples = tokens.samples};
  in_flight_.emplace(micro_batch, std::move(held));
  return output;
}

Status BuiltinStage::warm_up(int samples) {
  if (device_.is_host()) return Unit{};
  const auto positions =
      static_cast<std::size_t>(samples) * static_cast<std::size_t>(options_.sequence);
  const std::vector<std::int32_t> zeros(positions);
  Tokens tokens{.inputs = {}, .targets = {}, .samples = samples};
  if (needs_inputs()) tokens.inputs = zeros;
  if (is_last()) tokens.targets = zeros;
  const auto tensor = [&](std::int64_t bytes) -> Result<Buffer> {
    if (bytes == 0) return Buffer();
    Buffer made = device_.allocate(static_cast<std::size_t>(bytes));
    if (!made) return no_memory(device_, static_cast<std::size_t>(bytes));
    ops_->run(ops::Zero{made.as<float>(), made.size() / sizeof(float)});
    return made;
  };
  begin_step(step_, samples);
  WEIR_TRY(Buffer input, tensor(input_bytes(samples)));
  WEIR_TRY(Buffer output, forward(0, input, tokens));
  input = output = Buffer();
  WEIR_TRY(const Buffer gradient, tensor(output_bytes(samples)));
  WEIR_TRY([[maybe_unused]] const Buffer passed_on, backward(0, gradient));
  WEIR_TRY([[maybe_unused]] const auto squares, gradient_squares());
  // The update, of numbers of nobody, in both of its forms.
  WEIR_TRY(const Buffer adam, tensor(5 * std::int64_t{sizeof(float)}));
  auto* const one = adam.as<float>();
  for (const auto from : {ops::StepGradient(one), ops::StepGradient(adam.as<double>())}) {
    ops_->run(ops::AdamW{adamw_step(options_, step_), 1, from, one + 2, one + 3, one + 4});
  }
  begin_step(step_, samples);
  for (auto& layer : parameters_) layer.zero_gradients(*ops_, Part::kAll);
  return finish();
}

Result<Evaluated> BuiltinStage::evaluate(const Buffer& input, const Tokens& tokens) {
  WEIR_TRY(Buffer output, run_layers(*ops_, input, tokens, false, [](const KeptActivations&) {}));
  WEIR_TRY([[maybe_unused]] const Unit done, finish());
  return Evaluated{.output = std::move(output), .loss_sum = is_last() ? loss_of_pass() : 0};
}

// Runs a forward through all layers. `take` gets what each layer keeps for its backward.
template <class Take>
Result<Buffer> BuiltinStage::run_layers(ops::Kernels& ops, const Buffer& input,
                                        const Tokens& tokens, bool training, Take take) {
  WEIR_CHECK(tokens.samples > 0, "a micro-batch has samples");
  WEIR_CHECK(static_cast<std::int64_t>(input.size()) == input_bytes(tokens.samples),
             "the input has the size that this stage expects");
  WEIR_TRY([[maybe_unused]] const Unit checked, check_tokens(tokens));
  Buffer token_memory;
  WEIR_TRY(const Tokens device_tokens, on_device(tokens, token_memory));
  Buffer current = input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    WEIR_TRY(Forward result,
             layers_[i]->forward(pass(ops, i, tokens.samples, device_tokens, training), current));
    take(std::move(result.activations));
    current = std::move(result.output);
  }
  return current;
}

// Takes what the forward has kept, so each micro-batch has one backward.
InFlight BuiltinStage::begin_backward(int micro_batch, const Buffer& output_gradient) {
  const auto found = in_flight_.find(micro_batch);
  WEIR_CHECK(found != in_flight_.end(), "backward follows forward");
  WEIR_CHECK(micro_batch > last_backward_, "backward in rising order of micro-batches");
  WEIR_CHECK(!joined_ && !rounded_, "the gradients of this step are done");
  InFlight held = std::move(found->second);
  in_flight_.erase(found);
  last_backward_ = micro_batch;
  WEIR_CHECK(static_cast<std::int64_t>(output_gradient.size()) == output_bytes(held.samples),
             "the gradient has the size of the output");
  return held;
}

Result<Buffer> BuiltinStage::backward(int micro_batch, const Buffer& output_gradient) {
  WEIR_CHECK(between_.empty(), "all backwards of a step are whole");
  InFlight held = begin_backward(micro_batch, output_gradient);
  Buffer gradient = output_gradient;
  ops::Kernels& ops = begin_pass({.part = PassPart::kBackward, .samples = held.samples});
  for (std::size_t i = layers_.size(); i-- > 0;) {
    begin_gradients(ops, i, Part::kAll);
    WEIR_TRY(gradient, layers_[i]->backward(pass(ops, i, held.samples, Tokens{}),
                                            held.activations[i], gradient));
    held.activations[i] = KeptActivations{};
    parameters_[i].sum_gradients(ops, Part::kAll);
    if (hook_) hook_(i);
  }
  WEIR_TRY([[maybe_unused]] const Unit done, finish_pass());
  return gradient;
}

Result<Buffer> BuiltinStage::backward_input(int micro_batch, const Buffer& output_gradient) {
  InFlight held = begin_backward(micro_batch, output_gradient);
  Buffer gradient = output_gradient;
  ops::Kernels& ops = begin_pass({.part = PassPart::kBackwardInput, .samples = held.samples});
  for (std::size_t i = layers_.size(); i-- > 0;) {
    begin_gradients(ops, i, Part::kOther);
    WEIR_TRY(InputGradient result,
             layers_[i]->backward_input(pass(ops, i, held.samples, Tokens{}),
                                        std::move(held.activations[i]), gradient));
    held.activations[i] = std::move(result.held);
    gradient = std::move(result.gradient);
    parameters_[i].sum_gradients(ops, Part::kOther);
  }
  WEIR_TRY([[maybe_unused]] const Unit done, finish_pass());
  between_.emplace(micro_batch, std::move(held));
  return gradient;
}

Status BuiltinStage::backward_weights(int micro_batch) {
  const auto found = between_.find(micro_batch);
  WEIR_CHECK(found != between_.end(), "backward_weights follows backward_input");
  WEIR_CHECK(micro_batch > last_weights_, "backward_weights in rising order of micro-batches");
  WEIR_CHECK(!joined_ && !rounded_, "the gradients of this step are done");
  InFlight held = std::move(found->second);
  between_.erase(found);
  last_weights_ = micro_batch;
  ops::Kernels& ops = begin_pass({.part = PassPart::kBackwardWeights, .samples = held.samples});
  for (std::size_t i = layers_.size(); i-- > 0;) {
    begin_gradients(ops, i, Part::kLate);
    WEIR_TRY(
        [[maybe_unused]] const Unit added,
        layers_[i]->backward_weights(pass(ops, i, held.samples, Tokens{}), held.activations[i]));
    held.activations[i] = KeptActivations{};
    parameters_[i].sum_gradients(ops, Part::kLate);
    if (hook_) hook_(i);
  }
  return finish_pass();
}

}  // namespace

Result<std::unique_ptr<Stage>> make_stage(const Model& model, int first_layer, int last_layer,
                                          device::Device& device, GraphUse graphs,
                                          Initial initial) {
  WEIR_TRY(std::unique_ptr<ops::Kernels> kernels,
           ops::make_kernels(device, model.options.precision));
  return make_builtin_stage(model, first_layer, last_layer, device, std::move(kernels), graphs,
                            initial);
}

Result<std::unique_ptr<Stage>> make_builtin_stage(const Model& model, int first_layer,
                                                  int last_layer, device::Device& device,
                                                  std::unique_ptr<ops::Kernels> kernels,
                                                  GraphUse graphs, Initial initial) {
  WEIR_TRY(Layers layers, layers_of(model));
  const int count = static_cast<int>(layers.size());
  if (first_layer < 0 || last_layer < first_layer || last_layer >= count) {
    return Error{Code::kInvalid, "stage of layers " + std::to_string(first_layer) + ".." +
                                     std::to_string(last_layer) + ": the model has 0.." +
                                     std::to_string(count - 1)};
  }
  layers.erase(layers.begin() + last_layer + 1, layers.end());
  layers.erase(layers.begin(), layers.begin() + first_layer);
  std::vector<LayerParameters> parameters;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    WEIR_TRY(LayerParameters made,
             LayerParameters::make(layers[i]->parameters(), first_layer + static_cast<int>(i),
                                   model.options, device, *kernels));
    WEIR_OK(layers[i]->attach(made.values(), made.gradients()));
    Layer* const own = layers[i]->has_initial_values() ? layers[i].get() : nullptr;
    const bool given = model.source && model.source->has_initial_values();
    if (initial == Initial::kOfModel) {
      WEIR_OK(
          made.set_initial(model.options.seed, device, own, given ? model.source.get() : nullptr));
    }
    parameters.push_back(std::move(made));
  }
  Buffer loss_memory;
  if (!device.is_host()) {
    loss_memory = device.allocate_staging(sizeof(double));
    if (!loss_memory) return Error{Code::kInternal, "no staging memory left"};
  }
  std::vector<TiedEnds> ties;
  for (const Tie& tie : model.ties) {
    TiedEnds& ends = ties.emplace_back();
    if (first_layer == 0) ends.first = {.layer = 0, .parameter = tie.first_parameter};
    if (last_layer + 1 == count) {
      ends.last = {.layer = layers.size() - 1, .parameter = tie.last_parameter};
    }
  }
  return std::unique_ptr<Stage>(std::make_unique<BuiltinStage>(
      model.options, std::move(layers), std::move(parameters), std::move(ties), device,
      std::move(kernels), std::move(loss_memory), graphs));
}

}  // namespace weir::stage
