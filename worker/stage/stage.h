// SPDX-License-Identifier: Apache-2.0
// A pipeline stage: a contiguous range of layers with its parameters, kept activations and
// optimizer state. Only the engine thread uses it. Micro-batches have explicit ids, because kFkB
// has several in flight.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/stage/precision.h"

namespace weir::stage {

// Choices of the user: --model and its options. They determine every layer; the cut does not.
struct ModelOptions {
  std::string name = "gpt-tiny";
  int sequence = 128;                    // T: tokens per sample
  int vocabulary = 256;                  // V
  int blocks = 0, width = 0, heads = 0;  // of the models "gpt" and "llama"; others have theirs
  int kv_heads = 0, ffn = 0;             // of the model "llama" alone; 0 = as usual for its size
  std::string model_options = "{}";      // a JSON object, for layers of one's own
  std::string recompute = "none";        // which layers keep their input alone (recompute.h)
  std::uint64_t seed = 1;  // initial values depend on (seed, layer, parameter name) only
  Precision precision = Precision::kFp32;
  // AdamW
  double learning_rate = 3e-4, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  int warmup_steps = 0;
  std::string schedule = "constant";  // or "cosine", "linear", "wsd" over total_steps
  std::int64_t total_steps = 0;
  // Where the schedules that fall end and begin; unset: their defaults (learning_rate.h).
  std::optional<double> min_ratio;
  std::int64_t decay_steps = 0;  // "wsd" alone; 0 = unset
};

// Facts about one layer for the profile and the planner, in bytes.
struct LayerInfo {
  std::string id, description;       // "block0", "transformer block"
  std::string kind;                  // layers of equal kind take equal time
  std::int64_t parameter_bytes = 0;  // of those that are trained; in float32, for any precision
  std::int64_t frozen_bytes = 0;     // of those that are not, likewise
  std::int64_t output_bytes_per_sample = 0;
  std::int64_t activation_bytes_per_sample = 0;
  std::int64_t transient_bytes_per_sample = 0;
  // On top of these once for each micro-batch, whatever its samples: of layers of one's own.
  std::int64_t activation_bytes = 0, transient_bytes = 0;
  // Split backward: kept from backward_input to backward_weights; transient in either of them.
  std::int64_t held_bytes_per_sample = 0;
  std::int64_t split_transient_bytes_per_sample = 0;
  bool needs_inputs = false;  // reads the input tokens although it is not the first layer
};

// A table that the first and the last layer share. Both have it, with its sums and moments; its
// gradient is the sum of both, so both update it with the same bits.
struct Tie {
  std::string first, last;                              // its name in the first and last layer
  std::size_t first_parameter = 0, last_parameter = 0;  // indices within their layers
  std::int64_t bytes = 0;                               // of the table in float32
};

class LayerSource;  // layer.h

struct Model {
  ModelOptions options;
  std::shared_ptr<const LayerSource> source;  // of layers of one's own; null = built in
  std::vector<LayerInfo> layers;
  std::vector<Tie> ties;        // of parameters that are trained
  std::int64_t parameters = 0;  // their number, over all layers; a table that is shared counts once
  std::string digest;           // "sha256:..." of everything that the mathematics depends on
  std::string shapes;  // "sha256:..." of layers and parameters, which decides what can be loaded
};
// Describes the whole model. kInvalid names an unknown model and lists the known ones.
Result<Model> describe_model(const ModelOptions& options,
                             std::shared_ptr<const LayerSource> source = nullptr);
std::vector<std::string> model_names();

// Tokens of one micro-batch: inputs for stages that need them (Stage::needs_inputs), targets for
// the last one, both (samples, T) of int32; empty on other stages.
struct Tokens {
  std::span<const std::int32_t> inputs, targets;
  int samples = 0;
  int first_sample = 0;  // its index in the global batch
};

// Bytes that a stage holds per byte of its parameters (in float32): value, gradient and two moments
// as float, and the gradient's sum as double. In bf16 also the rounded copy that products read. Of
// frozen parameters it holds the value and that copy.
inline constexpr int kStateFactor = 6;
inline constexpr double state_factor(Precision precision) {
  return precision == Precision::kBf16 ? kStateFactor + 0.5 : kStateFactor;
}
inline constexpr std::int64_t state_bytes(Precision precision, std::int64_t parameter_bytes,
                                          std::int64_t frozen_bytes = 0) {
  const std::int64_t rounded =
      precision == Precision::kBf16 ? (parameter_bytes + frozen_bytes) / 2 : 0;
  return kStateFactor * parameter_bytes + frozen_bytes + rounded;
}

// The same factor for the copy of a save, on a worker that saves checkpoints from host memory. The
// copy holds values and moments until it is written, of frozen parameters values. It is complete if
// a rank must save without its replicas.
inline constexpr int kSaveCopyFactor = 3;
inline constexpr std::int64_t save_copy_bytes(const LayerInfo& layer) {
  return kSaveCopyFactor * layer.parameter_bytes + layer.frozen_bytes;
}

// Its spans, and those of LayerSum, are memory of Stage::device(). Host code accesses them through
// device::HostView, Device::read() and write().
struct Parameter {
  int layer = 0;
  std::string name;  // e.g. "attn.qkv.weight"; unique within its layer
  std::vector<std::int64_t> shape;
  std::span<float> value, gradient, adam_m, adam_v;  // all but the value are empty if it is frozen

  bool frozen() const { return gradient.empty(); }
  // The state that outlives a step, which checkpoints, moves and averages carry.
  std::array<std::span<float>, 3> state() const { return {value, adam_m, adam_v}; }
};

// The gradient of one layer, with all its parameters in a row.
struct LayerSum {
  std::span<double> sums;     // over the micro-batches of this stage so far
  std::span<float> gradient;  // of the step, once the sums of all replicas have been added
};

// The sums of a tied table in one of its two layers.
struct TiedSum {
  std::size_t layer = 0;  // index within the stage
  std::span<double> sums;
};

struct Evaluated {
  device::Buffer output;  // for the next stage; empty on the last one
  double loss_sum = 0;    // last stage: over the tokens of the micro-batch
};

class Stage {
 public:
  virtual ~Stage() = default;

  // input: output of the previous stage, (samples, T, C) numbers of the model's precision; empty on
  // the first stage. Returns the output for the next stage; the last stage returns an empty Buffer
  // and keeps the loss. Keeps the activations that backward(micro_batch) needs. kInternal: the
  // device has no memory left (exit code 81). kInvalid: a token outside the vocabulary. kModel: a
  // layer that is somebody else's code failed (exit code 84). No other errors.
  virtual Result<device::Buffer> forward(int micro_batch, const device::Buffer& input,
                                         const Tokens& tokens) = 0;
  // output_gradient: gradient of this stage's output; empty on the last stage. Adds to the
  // gradients' sums, frees the kept activations and returns the gradient of the input, which is
  // empty on the first stage. Call it in rising order of micro_batch. Gradients are those of the
  // mean loss over the whole global batch: each micro-batch is weighted by samples / step_samples
  // (begin_step). Their sums depend neither on the order of micro-batches nor on which replica adds
  // which (ops/exact_sum.h).
  virtual Result<device::Buffer> backward(int micro_batch,
                                          const device::Buffer& output_gradient) = 0;
  // A split backward, with the same bits: backward_input returns the gradient of the input, frees
  // what only it needs, and keeps what backward_weights needs to complete the gradients' sums. Each
  // of them in rising order of micro_batch; several micro-batches may be between them. A step's
  // backwards are all split or all whole.
  virtual Result<device::Buffer> backward_input(int micro_batch,
                                                const device::Buffer& output_gradient) = 0;
  virtual Status backward_weights(int micro_batch) = 0;

  // Evaluates data that is not trained on with the current parameters, between two steps. Keeps
  // nothing. Call begin_evaluation() first, and again after parameters have changed. Errors are
  // those of forward().
  virtual void begin_evaluation() = 0;
  virtual Result<Evaluated> evaluate(const device::Buffer& input, const Tokens& tokens) = 0;

  // Runs each kind of op of a step once, with `samples`, on tokens and tensors of zeros: on a
  // device whose libraries load a kernel at its first launch, and may wait for all others then,
  // none is left to load while transfers run. Changes neither parameters nor moments. Between two
  // steps; does nothing where ops are functions. Errors are those of forward().
  virtual Status warm_up(int /*samples*/) { return Unit{}; }

  // Zeroes gradients and the loss sum. Values that others have written (a checkpoint, another rank)
  // take effect. step_samples: over all replicas.
  virtual void begin_step(std::int64_t step, int step_samples) = 0;
  // The same for further micro-batches of a step that has stopped behind a last backward and, where
  // there are ties, behind their sum: gradients' sums stay. Losses before are not in loss() and
  // loss_sums().
  virtual void resume_step(std::int64_t step, int step_samples) = 0;
  virtual void optimizer_step() = 0;  // AdamW with the step's learning rate
  virtual double loss()
      const = 0;  // last stage: mean over the step so far, summed in micro-batch order; else NaN
  virtual std::int64_t output_bytes(
      int samples) const = 0;  // of one micro-batch; 0 on the last stage
  virtual std::int64_t input_bytes(int samples) const = 0;  // 0 on the first stage
  virtual bool needs_inputs() const = 0;                    // forward() reads Tokens::inputs
  virtual std::int64_t activation_bytes() const = 0;        // kept activations, now
  virtual device::Device& device() = 0;                     // the device on which the stage is
  virtual std::vector<Parameter> parameters() = 0;

  // After the last backward: Parameter::gradient becomes that of the step. Further calls do
  // nothing. optimizer_step() does not need it: without it, it rounds the sums as it reads them.
  virtual void finish_gradients() {}
  // Sums of squares of the step's gradient by layer, after the last backward: bit-equal for every
  // cut and on every device (ops/squares.h). Waits for the device. kInternal names what failed.
  virtual Result<std::vector<double>> gradient_squares() = 0;
  // optimizer_step() multiplies gradients by this factor as it reads them, until the next
  // begin_step(). Parameter::gradient does not change.
  virtual void scale_gradients(float factor) = 0;
  // With several replicas, the caller adds the sums of all, writes the result into
  // LayerSum::gradient and calls gradients_are_set(). By layer, in their order.
  virtual std::vector<LayerSum> layer_sums() { return {}; }
  virtual void gradients_are_set() {}
  // The ends of ties that this stage has. If it has one end of each, the caller adds the sums of
  // the other stage to it after the last backward, before it uses LayerSum::sums of that layer. If
  // it has both, the caller calls join_ties() then, or what reads the step's gradient does.
  virtual std::vector<TiedSum> tied_sums() { return {}; }
  virtual void join_ties() {}
  // The hook is called within backward() or backward_weights() with the index of a layer, when the
  // ops are enqueued that complete the layer's sums for that micro-batch. Valid until the next
  // begin_step().
  virtual void on_layer_summed(std::function<void(std::size_t index)> /*hook*/) {}
  // Last stage: the losses by micro-batch, in their order; and the mean over the step from the
  // losses of all replicas.
  virtual std::vector<double> loss_sums() const { return {}; }
  virtual double mean_loss(std::span<const double> /*sums*/) const { return loss(); }
  // False: the stage computes nothing (idle()), and its loss is meaningless.
  virtual bool trains() const { return true; }
  // Forwards, backwards and parts of backwards so far that ran as one graph (graphs.h).
  virtual std::int64_t graph_launches() const { return 0; }
};

// Whether the ops of a recurring forward or backward are launched as one graph, on devices that
// support it. Results do not depend on it. kWhereFaster: if both ways were timed and the graph was
// faster.
enum class GraphUse : unsigned char { kOff, kWhereFaster, kAlways };

// kFromElsewhere: values are zero until the caller writes all of them. Those of a folder or of
// layers of one's own are not read then.
enum class Initial : unsigned char { kOfModel, kFromElsewhere };

// Layers first..last (inclusive) of the model.
Result<std::unique_ptr<Stage>> make_stage(const Model& model, int first_layer, int last_layer,
                                          device::Device& device, GraphUse graphs = GraphUse::kOff,
                                          Initial initial = Initial::kOfModel);

// Emulated ops (worker/emulate): delays of their wake-ups after the deadlines, and the number of
// ops whose real work took longer than the profile says.
struct Lateness {
  std::vector<std::chrono::nanoseconds> samples;
  std::int64_t overruns = 0;
};

}  // namespace weir::stage
