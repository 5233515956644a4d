// SPDX-License-Identifier: Apache-2.0
#include "worker/app/opening_steps.h"

#include <utility>

#include "worker/base/cpus.h"
#include "worker/base/log.h"
#include "worker/huggingface/model.h"
#include "worker/stage/foreign/foreign_model.h"
#include "worker/stage/foreign/plugin.h"

namespace weir::app {
namespace {

Failure configuration(const Error& error) {
  return {Exit::kConfiguration, error.message};
}

// A folder of Hugging Face also says the vocabulary.
Result<std::shared_ptr<const stage::LayerSource>> open_folder(Options& o) {
  const std::string folder = o.folder();
  auto opened =
      huggingface::open_model({.path = folder, .random = o.random_init, .untie = o.untie}, o.model);
  if (!opened) return opened.error();
  if (o.vocabulary_given && o.model.vocabulary != opened->vocabulary) {
    return invalid("--vocab: " + std::to_string(o.model.vocabulary) + " is not the vocabulary of " +
                   folder + ", which has " + std::to_string(opened->vocabulary));
  }
  o.model.vocabulary = opened->vocabulary;
  return std::move(opened->source);
}

// Opens the file of the option. Without a file, the data is a part of the synthetic language.
Result<std::unique_ptr<data::Dataset>> open_part(const Options& o, const std::string& option,
                                                 const std::string& path, data::Part part) {
  const stage::ModelOptions& m = o.model;
  if (path.empty()) return data::make_synthetic(m.vocabulary, m.sequence, m.seed, part);
  auto opened = data::open_tokens(
      path,
      {.sequence = m.sequence, .vocabulary = m.vocabulary, .seed = m.seed, .flat = o.data_type});
  if (!opened) return opened.error().with(option);
  return opened;
}

}  // namespace

std::optional<Failure> open_device(State& state) {
  if (state.options.emulated()) {  // one thread; load_model gives it the name in the profile
    state.device = device::make_host_device(state.options.emulation.device_class);
  } else {
    Result<std::unique_ptr<device::Device>> opened =
        device::open_device(state.options.device, state.options.threads.value_or(usable_cpus()));
    if (!opened) return configuration(opened.error().with("--device"));
    state.device = *std::move(opened);
  }
  if (state.options.transport != "NCCL") return std::nullopt;
  Result<std::unique_ptr<transport::NcclTransport>> nccl = transport::open_nccl(*state.device);
  if (!nccl) return configuration(nccl.error().with("--transport"));
  state.nccl = *std::move(nccl);
  return std::nullopt;
}

std::optional<Failure> load_model(State& state) {
  const Options& o = state.options;
  std::shared_ptr<const stage::LayerSource> source;
  if (!o.folder().empty()) {
    auto opened = open_folder(state.options);
    if (!opened) return configuration(opened.error());
    source = *std::move(opened);
  }
  if (!o.plugin.empty()) {
    const Result<const weir_layers*> table = stage::open_plugin(o.plugin);
    if (!table) return configuration(table.error().with("--plugin"));
    state.layers = *table;
  }
  if (state.layers != nullptr) {
    auto described = stage::describe_foreign(*state.layers, o.model, *state.device);
    if (!described) {
      return configuration(
          described.error().with(o.plugin.empty() ? "--model" : "--plugin: " + o.plugin));
    }
    source = *std::move(described);
  }
  Result<stage::Model> model = stage::describe_model(o.model, std::move(source));
  if (!model) return configuration(model.error().with("--model"));
  state.model = *std::move(model);
  state.options.model.name = state.model->options.name;  // a plugin or a folder names its model
  if (!o.emulated()) return std::nullopt;

  Result<emulate::Emulation> emulation = emulate::Emulation::open(o.emulation, *state.model);
  if (!emulation) return configuration(emulation.error());
  state.emulation = *std::move(emulation);
  const std::string& device_class = state.emulation->times().device_class();
  state.device = device::make_host_device(device_class);
  log_warn(kComponent, "compute is emulated: every op takes at least its time in the profile",
           {{"profile", o.emulation.profile}, {"device", device_class}});
  return std::nullopt;
}

std::optional<Failure> open_data(State& state) {
  const Options& o = state.options;
  auto training = open_part(o, "--data", o.data, data::Part::kTraining);
  if (!training) return configuration(training.error());
  state.dataset = emulate::around(*std::move(training), o.emulation.data_delay);
  if (o.validation_interval > 0) {
    auto held_out = open_part(o, "--validation-data", o.validation_data, data::Part::kValidation);
    if (!held_out) return configuration(held_out.error());
    state.validation = *std::move(held_out);
  }
  if (!state.options.loss_log.empty()) {
    auto log = LossLog::open(state.options.loss_log);
    if (!log) return configuration(log.error());
    state.loss_log = *std::move(log);
  }
  if (!o.trace_file.empty()) {
    const auto steps = parse_trace_steps(o.trace_steps);
    if (!steps) return configuration(steps.error().with("--trace-steps"));
    state.trace_file = std::make_unique<TraceFile>(o.trace_file, *steps, record_names(o));
  }
  log_info(kComponent, "model and data",
           {{"model", o.model.name},
            {"layers", state.model->layers.size()},
            {"data", state.dataset->description()},
            {"validation", state.validation ? state.validation->description() : "none"},
            {"steps", state.options.steps}});
  return std::nullopt;
}

std::optional<Failure> open_metrics(State& state) {
  const int usual = state.options.plans_itself() ? 0 : protocol::kMetricsPort;
  auto endpoint = telemetry::make_endpoint(state.options.metrics_port.value_or(usual),
                                           state.options.listen_ip());
  if (!endpoint) return configuration(endpoint.error());
  state.endpoint = *std::move(endpoint);
  log_info(kComponent, "metrics", {{"metrics_port", state.endpoint->port()}});
  return std::nullopt;
}

}  // namespace weir::app
