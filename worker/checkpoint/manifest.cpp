// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/manifest.h"

#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

namespace weir::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kManifestVersion = "weir.dev/checkpoint/v1";
constexpr std::string_view kFolder = "step-", kUnfinished = ".tmp", kLayer = "layer-",
                           kFile = ".safetensors";
constexpr std::size_t kFolderDigits = 10, kLayerDigits = 5, kDigestLength = 64;

std::string padded(std::string_view prefix, std::int64_t number, std::size_t digits) {
  std::string text = std::to_string(number);
  if (text.size() < digits) text.insert(0, digits - text.size(), '0');
  return std::string(prefix) + text;
}

template <class T>
std::optional<T> number_of(std::string_view text, std::size_t least_digits) {
  T value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (!whole || text.size() < least_digits || value < 0) return std::nullopt;
  return value;
}

json to_json(const Optimizer& o) {
  return {{"name", "AdamW"},        {"learningRate", o.learning_rate},
          {"beta1", o.beta1},       {"beta2", o.beta2},
          {"epsilon", o.epsilon},   {"weightDecay", o.weight_decay},
          {"schedule", o.schedule}, {"warmupSteps", o.warmup_steps}};
}

// Throws std::exception if the value is not an integer of this type, because the library would wrap
// it.
template <class T>
T whole(const json& object, const char* name, T missing) {
  const auto found = object.find(name);
  if (found == object.end()) return missing;
  const bool fits = found->is_number_unsigned() ? std::in_range<T>(found->get<std::uint64_t>())
                                                : found->is_number_integer() &&
                                                      std::in_range<T>(found->get<std::int64_t>());
  if (!fits) throw std::out_of_range(std::string(name) + " is no integer that fits");
  return found->get<T>();
}

Optimizer optimizer_of(const json& from) {
  return {.learning_rate = from.value("learningRate", 0.0),
          .beta1 = from.value("beta1", 0.0),
          .beta2 = from.value("beta2", 0.0),
          .epsilon = from.value("epsilon", 0.0),
          .weight_decay = from.value("weightDecay", 0.0),
          .schedule = from.value("schedule", ""),
          .warmup_steps = whole(from, "warmupSteps", 0)};
}

Error wrong_manifest(const std::string& what) {
  return {Code::kInvalid, std::string(kManifestName) + ": " + what};
}

// Throws std::exception if a field is missing or has another type.
Manifest read(const json& from) {
  static_cast<void>(from.at("step"));
  Manifest manifest{.step = whole(from, "step", std::int64_t{0}),
                    .samples = whole(from, "samples", std::int64_t{0}),
                    .compressed_steps = whole(from, "compressedSteps", std::int64_t{0}),
                    .job = from.value("job", ""),
                    .model = from.value("model", ""),
                    .digest = from.at("digest").get<std::string>(),
                    .shapes = from.value("shapes", ""),
                    .settings = {},
                    .seed = whole(from, "seed", std::uint64_t{0}),
                    .revision = whole(from, "revision", std::uint32_t{0}),
                    .incarnation = whole(from, "incarnation", 0),
                    .first_layer = whole(from, "firstLayer", 0)};
  if (from.contains("settings")) {
    for (const auto& [name, value] : from.at("settings").items()) {
      manifest.settings.push_back({name, value.get<std::string>()});
    }
  }
  if (from.contains("optimizer")) manifest.optimizer = optimizer_of(from.at("optimizer"));
  if (from.contains("plan")) manifest.plan_json = from.at("plan").dump();
  if (from.contains("export")) manifest.export_json = from.at("export").dump();
  for (const json& file : from.at("files")) {
    manifest.files.push_back({.name = file.at("name").get<std::string>(),
                              .bytes = whole(file, "bytes", std::int64_t{0}),
                              .sha256 = file.at("sha256").get<std::string>()});
  }
  return manifest;
}

}  // namespace

std::string encode(const Manifest& m) {
  json files = json::array();
  for (const FileEntry& file : m.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  json all = {{"apiVersion", kManifestVersion},
              {"step", m.step},
              {"samples", m.samples},
              {"model", m.model},
              {"digest", m.digest},
              {"seed", m.seed},
              {"dataPosition", {{"step", m.step}, {"samples", m.samples}}},
              {"optimizer", to_json(m.optimizer)},
              {"revision", m.revision},
              {"incarnation", m.incarnation},
              {"files", files}};
  if (!m.job.empty()) all["job"] = m.job;
  if (!m.shapes.empty()) all["shapes"] = m.shapes;
  if (m.first_layer != 0) all["firstLayer"] = m.first_layer;
  if (m.compressed_steps != 0) all["compressedSteps"] = m.compressed_steps;
  for (const Setting& one : m.settings) all["settings"][one.name] = one.value;
  const json plan = json::parse(m.plan_json, nullptr, false);
  if (plan.is_object()) all["plan"] = plan;
  const json exported = json::parse(m.export_json, nullptr, false);
  if (exported.is_object()) all["export"] = exported;
  return all.dump(1) + "\n";
}

Result<Manifest> decode_manifest(std::string_view text) {
  const json from = json::parse(text, nullptr, false);
  if (!from.is_object()) return wrong_manifest("is no JSON object");
  Manifest manifest;
  try {
    if (from.value("apiVersion", "") != kManifestVersion)
      return wrong_manifest("apiVersion is not " + std::string(kManifestVersion));
    manifest = read(from);
  } catch (const std::exception& error) {
    return wrong_manifest(error.what());
  }
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const FileEntry& file = manifest.files[i];
    const std::optional<int> layer = parse_layer_file(file.name);
    const bool good = layer &&
                      std::cmp_equal(*layer, manifest.first_layer + static_cast<std::int64_t>(i)) &&
                      file.bytes > 0 && file.sha256.size() == kDigestLength;
    if (!good)
      return wrong_manifest("files[" + std::to_string(i) + "] is not the file of that layer");
  }
  if (manifest.first_layer < 0) return wrong_manifest("firstLayer is negative");
  if (manifest.compressed_steps < 0 || manifest.compressed_steps > manifest.step) {
    return wrong_manifest("compressedSteps is not within 0 .. step");
  }
  if (manifest.step < 0 || manifest.files.empty()) return wrong_manifest("no step or no files");
  return manifest;
}

std::string join(const std::string& folder, const std::string& name) {
  return folder + "/" + name;
}

std::string folder_name(std::int64_t step) {
  return padded(kFolder, step, kFolderDigits);
}

std::string unfinished_name(std::int64_t step) {
  return folder_name(step) + std::string(kUnfinished);
}

std::string layer_file(int layer) {
  return padded(kLayer, layer, kLayerDigits) + std::string(kFile);
}

std::optional<FolderName> parse_folder(std::string_view name) {
  if (!name.starts_with(kFolder)) return std::nullopt;
  name.remove_prefix(kFolder.size());
  const bool unfinished = name.ends_with(kUnfinished);
  if (unfinished) name.remove_suffix(kUnfinished.size());
  const auto step = number_of<std::int64_t>(name, kFolderDigits);
  if (!step) return std::nullopt;
  return FolderName{.step = *step, .unfinished = unfinished};
}

std::optional<int> parse_layer_file(std::string_view name) {
  if (!name.starts_with(kLayer) || !name.ends_with(kFile)) return std::nullopt;
  name.remove_prefix(kLayer.size());
  name.remove_suffix(kFile.size());
  return number_of<int>(name, kLayerDigits);
}

}  // namespace weir::checkpoint
