// SPDX-License-Identifier: Apache-2.0
#include "worker/app/contradictions.h"

#include "worker/base/host_port.h"
#include "worker/base/utf8.h"
#include "worker/base/worker_index.h"
#include "worker/http/text.h"
#include "worker/schedule/validate.h"

namespace weir::app {
namespace {

// "" or what is wrong with an address.
template <class Parsed>
std::string wrong(const char* option, const Result<Parsed>& parsed) {
  return parsed ? "" : parsed.error().with(option).message;
}

}  // namespace

std::string contradiction(const Options& o) {
  const auto if_so = [](bool broken, const std::string& message) { return broken ? message : ""; };
  const auto useless = [](bool set, const std::string& option, const char* without) {
    return set ? option + ": has no effect without " + without + "; set both" : "";
  };
  const bool operated = !o.standalone();
  const bool llama = o.model.name == "llama" && !o.foreign();
  const bool sized = llama || (o.model.name == "gpt" && !o.foreign());
  const auto size = [&](const char* option, int given) {
    if (sized && given == 0) {
      return std::string(option) + ": required by --model=" + o.model.name + ", not set";
    }
    return useless(!sized && given != 0, option, "--model=gpt or llama");
  };
  const bool folder = !o.folder().empty();
  const bool good_export = o.export_to == "hf" || (o.export_to.starts_with(kFolder) &&
                                                   o.export_to.size() > kFolder.size());
  const bool validates = o.validation_interval > 0;
  const auto samples = std::int64_t{o.own_micro_batches} * o.own_micro_batch_size;
  for (const std::string& message : {
           useless(!o.foreign() && !folder &&
                       o.model.model_options != stage::ModelOptions().model_options,
                   "--model-option", "--plugin or --model=hf:DIR"),
           useless(!folder && o.random_init, "--init=random", "--model=hf:DIR"),
           useless(!folder && o.untie, "--untie", "--model=hf:DIR"),
           useless(!llama && o.model.kv_heads != 0, "--kv-heads", "--model=llama"),
           useless(!llama && o.model.ffn != 0, "--ffn", "--model=llama"),
           if_so(!o.export_to.empty() && !good_export,
                 "--export: must be hf or hf:DIR, found " + in_quotes(o.export_to)),
           useless(!o.export_to.empty() && !o.saves(), "--export", "--checkpoint-dir"),
           if_so(o.hosted && o.device != "cpu",
                 "--device=" + o.device + ": this program computes on the host only"),
           if_so(!o.plugin.empty() && o.device != "cpu",
                 "--plugin: computes on the host only; set --device=cpu, found " +
                     in_quotes(o.device)),
           size("--layers", o.model.blocks),
           useless(o.model.schedule == "constant" && o.model.min_ratio, "--min-lr-ratio",
                   "--lr-schedule"),
           useless(o.model.schedule != "wsd" && o.model.decay_steps != 0, "--decay-steps",
                   "--lr-schedule=wsd"),
           if_so(o.model.decay_steps > o.steps, "--decay-steps: must be at most --steps " +
                                                    std::to_string(o.steps) + ", found " +
                                                    std::to_string(o.model.decay_steps)),
           size("--width", o.model.width),
           size("--heads", o.model.heads),
           if_so(validates && !o.data.empty() && o.validation_data.empty(),
                 "--validation-data: required by --validation-interval with --data, not set"),
           useless(!o.trace_file.empty() && o.trace_steps.empty(), "--trace-file", "--trace-steps"),
           if_so(!o.trace_file.empty() && o.flight_events == 0,
                 "--trace-file: nothing is recorded with --flight-events=0"),
           useless(o.trace_file.empty() && !o.trace_steps.empty(), "--trace-steps", "--trace-file"),
           useless(!validates && !o.validation_data.empty(), "--validation-data",
                   "--validation-interval"),
           if_so(o.ranks != 1, "WEIR_RANKS: must be 1, found " + std::to_string(o.ranks) +
                                   "; a worker runs one rank"),
           if_so(o.transport != "Auto" && o.transport != "TCP" && o.transport != "NCCL",
                 "WEIR_TRANSPORT: must be Auto, TCP or NCCL, found " + in_quotes(o.transport)),
           if_so(operated && !o.plan_file.empty(),
                 "--plan: not allowed with WEIR_CONTROL_URL, plans then come from the operator; "
                 "remove one of them"),
           if_so(operated && o.control_dir.empty(),
                 "WEIR_CONTROL_DIR: required by WEIR_CONTROL_URL, not set"),
           if_so(o.worker_index >= o.workers && !is_spare(o.worker_index),
                 "--worker-index: must be below --workers " + std::to_string(o.workers) +
                     ", or that of a spare, from " + std::to_string(kFirstSpare) + " on, found " +
                     std::to_string(o.worker_index)),
           if_so(o.worker_index > 0 && o.coordinator.empty(),
                 "--coordinator: required on workers other than 0, not set; name host:port of "
                 "worker 0"),
           if_so(!o.listen.empty() && !is_ip_address(o.listen),
                 "--listen: must be an IP address, found " + in_quotes(o.listen)),
           if_so(!o.coordinator.empty(), wrong("--coordinator", parse_host_port(o.coordinator))),
           if_so(operated, wrong("WEIR_CONTROL_URL", http::parse_base_url(o.control_url))),
           if_so(samples > schedule::kMostStepSamples,
                 "--micro-batch-size: " + std::to_string(o.own_micro_batch_size) + " times " +
                     std::to_string(o.own_micro_batches) + " --micro-batches is above " +
                     std::to_string(schedule::kMostStepSamples) + " samples a step"),
           if_so(o.plans_itself() && o.workers > 1,
                 "--workers: must be 1 without --plan and without an operator, found " +
                     std::to_string(o.workers)),
           if_so(o.emulated() && o.device != "cpu",
                 "--device: must be cpu with --emulate-profile, found " + in_quotes(o.device)),
       }) {
    if (!message.empty()) return message;
  }
  return "";
}

}  // namespace weir::app
