// SPDX-License-Identifier: Apache-2.0
#include "operator/app/plan_inputs.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "operator/planner/model/cluster_json.h"
#include "operator/planner/model/graph_text.h"
#include "operator/planner/model/json_lines.h"
#include "operator/planner/model/profile_json.h"
#include "operator/planner/model/sailor_profile.h"
#include "worker/base/digest.h"
#include "worker/base/file_error.h"
#include "worker/protocol/codec.h"
#include "worker/schedule/caps.h"

namespace weir::operator_app {
namespace {

using planner::Cluster;
using planner::Model;

constexpr std::size_t kMostBytes = 64U << 20;  // of a file; the limit of the readers

// The file's name without folders, for messages.
std::string short_name(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? file : file.substr(slash + 1);
}

std::string stem(const std::string& file) {
  const std::string name = short_name(file);
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
}

// JSON pointer of a field that the reader of profiles names, such as
// nodes[3].times.cpu[0].forward.
std::string pointer_of(const std::string& field) {
  std::string pointer = "/";
  for (const char c : field) {
    if (c == '[' || c == '.') {
      pointer += '/';
    } else if (c != ']') {
      pointer += c;
    }
  }
  return pointer;
}

Result<Model> profile_of(const std::string& text, const std::string& name) {
  nlohmann::json document;
  WEIR_OK(planner::parse_json(text, name, document));
  auto model = planner::decode_profile(text);
  if (model) return model;
  const std::string& message = model.error().message;
  const std::size_t colon = message.find(": ");
  if (message.starts_with(name) || colon == std::string::npos) return model.error();
  return planner::json_error(text, name, pointer_of(message.substr(0, colon)),
                             message.substr(colon + 2));
}

int samples_of(const Model& model) {
  for (const planner::Layer& layer : model.layers) {
    for (const auto& [device_class, times] : layer.times) {
      if (!times.empty()) return times.front().samples;
    }
  }
  return 1;
}

// Reads the file `from` if it exists; else `from` is the short form of a cluster.
Result<Cluster> cluster_of(const std::string& from, std::istream& standard_input) {
  std::error_code none;
  if (from == "-" || std::filesystem::exists(from, none)) {
    WEIR_TRY(const std::string text, read_text(from, standard_input));
    return planner::decode_cluster(text, short_name(from));
  }
  auto cluster = planner::decode_short_cluster(from);
  if (cluster) return cluster;
  return cluster.error().with("--cluster: no file of that name, and as a short form");
}

// Reads a profile sailor:CLASS=FILE[,CLASS=FILE] with --sailor-info and --sailor-model.
Result<Model> sailor_model(const InputOptions& options, std::istream& standard_input) {
  if (options.sailor_info.empty() || options.sailor_model.empty()) {
    return invalid("a sailor: profile needs --sailor-info and --sailor-model");
  }
  WEIR_TRY(const std::string info, read_text(options.sailor_info, standard_input));
  WEIR_TRY(
      const planner::SailorSizes sizes,
      planner::decode_sailor_sizes(info, options.sailor_model, short_name(options.sailor_info)));
  std::vector<std::pair<std::string, planner::SailorTimes>> classes;
  std::string rest = options.profile.substr(std::string_view("sailor:").size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.size(), rest.find(','));
    const std::string part = rest.substr(0, end);
    rest.erase(0, end + 1);
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid("--profile sailor: expected CLASS=FILE, got \"" + part + "\"");
    }
    const std::string file = part.substr(equals + 1);
    WEIR_TRY(const std::string text, read_text(file, standard_input));
    WEIR_TRY(planner::SailorTimes times, planner::decode_sailor_times(text, short_name(file)));
    classes.emplace_back(part.substr(0, equals), std::move(times));
  }
  if (classes.empty()) return invalid("--profile sailor: names no file");
  return planner::model_of_sailor(classes, sizes);
}

Result<PlanInputs> read_model(const InputOptions& options, std::istream& standard_input) {
  PlanInputs inputs;
  if (options.profile.starts_with("sailor:")) {
    WEIR_TRY(inputs.model, sailor_model(options, standard_input));
    inputs.model_name = options.sailor_model;
    inputs.profile_samples = samples_of(inputs.model);
    return inputs;
  }
  WEIR_TRY(const std::string text, read_text(options.profile, standard_input));
  const std::string name = short_name(options.profile);
  if (planner::looks_like_graph(text)) {
    WEIR_TRY(inputs.model, planner::decode_graph(text, name));
    if (inputs.model.name.empty()) inputs.model.name = stem(options.profile);
  } else {
    WEIR_TRY(inputs.model, profile_of(text, name));
  }
  if (inputs.model.digest.empty()) inputs.model.digest = "sha256:" + sha256_hex(text);
  inputs.model_name = inputs.model.name.empty() ? stem(options.profile) : inputs.model.name;
  inputs.profile_samples = samples_of(inputs.model);
  return inputs;
}

// Removes a byte order mark and makes every line end with \n. An error, if the text is no UTF-8, is
// "NAME: reason".
Result<std::string> plain_text(std::string text, const std::string& name) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    return invalid(name + ": UTF-16, expected UTF-8");
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (const std::size_t at = text.find('\0'); at != std::string::npos) {
    return invalid(name + ": a zero byte at offset " + std::to_string(at) +
                   ", expected UTF-8 text (UTF-16 has such)");
  }
  std::string lines;
  lines.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      lines += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      lines += '\n';
    }
  }
  return lines;
}

}  // namespace

Result<std::string> read_text(const std::string& file, std::istream& standard_input) {
  std::ifstream opened;
  if (file != "-") {
    opened.open(file, std::ios::binary);
    if (!opened) return unreadable(file);
  }
  std::istream& in = file == "-" ? standard_input : opened;
  std::string text;
  errno = 0;
  char block[65536];
  while (in.read(block, sizeof block) || in.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMostBytes) return invalid(short_name(file) + ": longer than 64 MiB");
  }
  if (in.bad()) return unreadable(file);
  return plain_text(std::move(text), file == "-" ? "standard input" : short_name(file));
}

Result<PlanInputs> read_inputs(const InputOptions& options, std::istream& standard_input) {
  if (options.profile == "-" && options.cluster == "-") {
    return invalid("--profile and --cluster cannot both be standard input");
  }
  WEIR_TRY(PlanInputs inputs, read_model(options, standard_input));
  WEIR_TRY(inputs.cluster, cluster_of(options.cluster, standard_input));
  std::string text;
  for (const planner::DeviceClass& known : inputs.cluster.classes) {
    const auto count = std::ranges::count_if(
        inputs.cluster.devices,
        [&](const planner::Device& device) { return device.device_class == known.name; });
    text += (text.empty() ? "" : " + ") + std::to_string(count) + " x " + known.name;
  }
  inputs.cluster_name = text;
  return inputs;
}

namespace {

Result<int> number_in(std::string_view text, std::string_view part) {
  int value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc{} || end != part.data() + part.size() || value < 0) {
    return invalid("plan \"" + std::string(text) + "\": expected FIRST-LAST[xRANKS],..., got \"" +
                   std::string(part) + "\"");
  }
  return value;
}

bool looks_like_chain(const std::string& text) {
  return !text.empty() && text.find('-') != std::string::npos && text != "-" &&
         text.find_first_not_of("0123456789-x,") == std::string::npos;
}

// Plan of a short chain such as "0-16x3,17-39x1": devices in the order of the cluster, 16
// micro-batches of the profile's size, k=1.
Result<schedule::Plan> chain_plan(const std::string& text, const PlanInputs& inputs) {
  schedule::Plan plan;
  plan.schedule.micro_batch_size = inputs.profile_samples;
  plan.micro_batches = {16};
  std::size_t device = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.size(), text.find(',', at));
    const std::string_view part = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const std::size_t dash = part.find('-'), x = std::min(part.size(), part.find('x'));
    if (dash == std::string_view::npos || dash > x) {
      return invalid("plan \"" + text + "\": expected FIRST-LAST[xRANKS],...");
    }
    schedule::LayerRange range;
    WEIR_TRY(range.first, number_in(text, part.substr(0, dash)));
    WEIR_TRY(range.last, number_in(text, part.substr(dash + 1, x - dash - 1)));
    int ranks = 1;
    if (x < part.size()) {
      WEIR_TRY(ranks, number_in(text, part.substr(x + 1)));
    }
    for (int r = 0; r < ranks; ++r, ++device) {
      if (device >= inputs.cluster.devices.size()) {
        return invalid("plan \"" + text + "\": needs more than the " +
                       std::to_string(inputs.cluster.devices.size()) + " devices of the cluster");
      }
      const planner::Device& it = inputs.cluster.devices[device];
      plan.ranks.push_back({it.pod, it.pod_uid, it.ip, it.node, it.local, 0,
                            static_cast<int>(plan.stages.size()), it.data_port});
    }
    plan.stages.push_back(range);
  }
  plan.schedule.caps = schedule::kfkb_caps(plan.stage_count(), 16, 1);
  plan.schedule.dispatch = schedule::Dispatch::kStrict;
  return plan;
}

}  // namespace

Result<PlanToSimulate> read_plan(const SimulateOptions& options, const PlanInputs& inputs,
                                 std::istream& standard_input) {
  PlanToSimulate result;
  if (looks_like_chain(options.plan)) {
    WEIR_TRY(result.plan, chain_plan(options.plan, inputs));
    return result;
  }
  WEIR_TRY(std::string text, read_text(options.plan, standard_input));
  const std::string name = short_name(options.plan);
  nlohmann::json document;
  WEIR_OK(planner::parse_json(text, name, document));
  if (document.is_object() && document.contains("plan")) {
    const auto report = document.find("report");
    if (report != document.end() && report->is_object() && report->contains("order")) {
      const nlohmann::json& order = (*report)["order"];
      const auto layers = inputs.model.layers.size();
      std::vector<bool> seen(layers, false);
      bool good = order.is_array() && order.size() == layers;
      for (std::size_t i = 0; good && i < layers; ++i) {
        good = order[i].is_number_unsigned() && order[i].get<std::size_t>() < layers &&
               !seen[order[i].get<std::size_t>()];
        if (!good) break;
        seen[order[i].get<std::size_t>()] = true;
        result.order.push_back(order[i].get<int>());
      }
      if (!good) {
        return planner::json_error(text, name, "/report/order",
                                   "expected each layer of the profile once");
      }
    }
    text = document["plan"].dump();
  }
  auto plan = protocol::decode_plan(text);
  if (!plan) return plan.error().with(name);
  result.plan = *std::move(plan);
  return result;
}

}  // namespace weir::operator_app
