// SPDX-License-Identifier: Apache-2.0
// A pipeline stage: a contiguous range of layers with its parameters, stashes and optimizer state.
// Driven by the engine thread alone. Micro-batch ids are explicit: kFkB has several in flight.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/stage/precision.h"

namespace weir::stage {

// What the user chose: --model and its options. Decides every layer; the cut does not.
struct ModelOptions {
  std::string name = "gpt-tiny";
  int sequence = 128;      // T: tokens per sample
  int vocabulary = 256;    // V
  std::uint64_t seed = 1;  // initial values depend on (seed, layer, parameter name) only
  Precision precision = Precision::kFp32;
  // AdamW
  double learning_rate = 3e-4, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  int warmup_steps = 0;
  std::string schedule = "constant";  // or "cosine" over total_steps
  std::int64_t total_steps = 0;
};

// Facts of one layer, for the profile and the planner; bytes.
struct LayerInfo {
  std::string id, description;       // "block0", "transformer block"
  std::string kind;                  // layers of equal kind take equal time
  std::int64_t parameter_bytes = 0;  // in float32, whatever the precision
  std::int64_t output_bytes_per_sample = 0;
  std::int64_t stash_bytes_per_sample = 0;
  std::int64_t transient_bytes_per_sample = 0;
};

struct Model {
  ModelOptions options;
  std::vector<LayerInfo> layers;
  std::string digest;  // "sha256:..." of everything that decides the mathematics
  std::string
      shapes;  // "sha256:..." of its layers and their parameters: what can be loaded into it
};
// The whole model's description. kInvalid names an unknown model and lists the known ones.
Result<Model> describe_model(const ModelOptions& options);
std::vector<std::string> model_names();

// Tokens of one micro-batch: inputs for the first stage, targets for the last, both (samples, T) of
// int32; empty elsewhere.
struct Tokens {
  std::span<const std::int32_t> inputs, targets;
  int samples = 0;
};

// Bytes that a stage holds per byte of its parameters (of float32): value, gradient and two moments
// in float, the gradient's sum in double; in bf16 the rounded copy that the products read, too.
inline constexpr int kStateFactor = 6;
inline constexpr double state_factor(Precision precision) {
  return precision == Precision::kBf16 ? kStateFactor + 0.5 : kStateFactor;
}
inline constexpr std::int64_t state_bytes(Precision precision, std::int64_t parameter_bytes) {
  return kStateFactor * parameter_bytes + (precision == Precision::kBf16 ? parameter_bytes / 2 : 0);
}

// The same for a worker that saves checkpoints from host memory: the copy that a save holds until
// it is written is of values and moments, all of it when a rank has to save without its replicas.
inline constexpr int kSaveCopyFactor = 3;

// Its spans, and those of LayerSum, are memory of Stage::device(): host code reaches them through
// device::HostView, Device::read() and write().
struct Parameter {
  int layer = 0;
  std::string name;  // "attn.qkv.weight"; unique within its layer
  std::vector<std::int64_t> shape;
  std::span<float> value, gradient, adam_m, adam_v;

  // What outlives a step: what checkpoints, moves and averages carry.
  std::array<std::span<float>, 3> state() const { return {value, adam_m, adam_v}; }
};

// The gradient of one layer, all its parameters in a row.
struct LayerSum {
  std::span<double> sums;     // over the micro-batches of this stage so far
  std::span<float> gradient;  // of the step, once all replicas' sums are added
};

struct Evaluated {
  device::Buffer output;  // for the next stage; empty on the last one
  double loss_sum = 0;    // last stage: over the micro-batch's tokens
};

class Stage {
 public:
  virtual ~Stage() = default;

  // input: output of the stage before, (samples, T, C) numbers of the model's precision, empty on
  // the first stage. Returns
  // the output for the next one; the last stage returns an empty Buffer and keeps the loss. Keeps
  // what backward(micro_batch) needs. kInternal when the device has no memory left (exit code 81),
  // kInvalid for a token outside the vocabulary; no other errors.
  virtual Result<device::Buffer> forward(int micro_batch, const device::Buffer& input,
                                         const Tokens& tokens) = 0;
  // output_gradient: of this stage's output, empty on the last stage. Adds to the gradients' sums,
  // drops the stash, returns the gradient of the input, empty on the first stage. Must be called in
  // rising order of micro_batch. Gradients are those of the mean loss over the whole global batch:
  // each micro-batch is weighted by samples / step_samples (begin_step). Their sums depend neither
  // on the order of micro-batches nor on which replica adds which (ops/exact_sum.h).
  virtual Result<device::Buffer> backward(int micro_batch,
                                          const device::Buffer& output_gradient) = 0;

  // Between two steps: what the parameters as they are make of data that is not trained on. Keeps
  // nothing. begin_evaluation() comes first, and again when parameters have changed. Errors of
  // forward().
  virtual void begin_evaluation() = 0;
  virtual Result<Evaluated> evaluate(const device::Buffer& input, const Tokens& tokens) = 0;

  // Zeroes gradients and the loss sum; values that others have written (a checkpoint, another rank)
  // count from here on. step_samples: of all replicas.
  virtual void begin_step(std::int64_t step, int step_samples) = 0;
  virtual void optimizer_step() = 0;  // AdamW with the step's learning rate
  virtual double loss()
      const = 0;  // last stage: mean over the step so far, summed in micro-batch order; else NaN
  virtual std::int64_t output_bytes(
      int samples) const = 0;  // of one micro-batch; 0 on the last stage
  virtual std::int64_t input_bytes(int samples) const = 0;  // 0 on the first stage
  virtual std::int64_t stash_bytes() const = 0;             // held now
  virtual device::Device& device() = 0;                     // that it lives on
  virtual std::vector<Parameter> parameters() = 0;

  // After the last backward: Parameter::gradient becomes that of the step. Again: nothing. Without
  // it, optimizer_step() does it.
  virtual void finish_gradients() {}
  // Sums of squares of the step's gradient by layer, which finish_gradients() has made: the same
  // bits for every cut and on every device (ops/squares.h). Waits for the device; kInternal names
  // what failed.
  virtual Result<std::vector<double>> gradient_squares() = 0;
  // optimizer_step() multiplies gradients by this as it reads them, until the next begin_step();
  // Parameter::gradient stays.
  virtual void scale_gradients(float factor) = 0;
  // Several replicas: instead, somebody adds up their sums, writes the result into
  // LayerSum::gradient, and says so. By layer, in their order.
  virtual std::vector<LayerSum> layer_sums() { return {}; }
  virtual void gradients_are_set() {}
  // Called within backward() with the index of a layer when the ops are enqueued with which its
  // sums hold that micro-batch, until the next begin_step().
  virtual void on_layer_summed(std::function<void(std::size_t index)> /*hook*/) {}
  // Last stage: by micro-batch, in their order; and the mean over the step from those of all.
  virtual std::vector<double> loss_sums() const { return {}; }
  virtual double mean_loss(std::span<const double> /*sums*/) const { return loss(); }
  // False: it computes nothing (idle()), and no loss of it means anything.
  virtual bool trains() const { return true; }
  // Forwards and backwards so far whose ops were launched as one graph (graphs.h).
  virtual std::int64_t graph_launches() const { return 0; }
};

// On devices that can: the ops of a forward or backward that comes again are launched as one. The
// numbers are the same. kWhereFaster: where both ways were timed and it was.
enum class GraphUse : unsigned char { kOff, kWhereFaster, kAlways };

// Layers first..last (inclusive) of the model, initial values set. Built-in models only.
Result<std::unique_ptr<Stage>> make_stage(const Model& model, int first_layer, int last_layer,
                                          device::Device& device, GraphUse graphs = GraphUse::kOff);

// Emulated compute, for timing on few cores: does the real work of `inner`, then sleeps until start
// + the time that the profile gives for these layers on this device class. Sleeping is absolute
// (worker/transport/README.md "Traps of measuring").
struct EmulatedTimes {
  std::function<std::chrono::nanoseconds(int samples)> forward, backward;
  std::chrono::nanoseconds update{0};
  // So many times as long takes an op that begins now: in the n-th step of this stage, from 1, so
  // long after its first step began. Empty: never longer.
  std::function<double(std::int64_t n, std::chrono::nanoseconds since_start)> slowness = {};
};
struct Lateness {  // of wake-ups against deadlines, and ops whose real work took longer than the
                   // profile
  std::vector<std::chrono::nanoseconds> samples;
  std::int64_t overruns = 0;
};
std::unique_ptr<Stage> emulate(std::unique_ptr<Stage> inner, EmulatedTimes times,
                               std::shared_ptr<Lateness> lateness);

// Hands on random numbers of the right size instead of what `inner` would compute, and trains
// nothing: for stages whose emulated time alone counts. It has no loss.
std::unique_ptr<Stage> idle(std::unique_ptr<Stage> inner, Precision precision);

}  // namespace weir::stage
