// SPDX-License-Identifier: Apache-2.0
#include "worker/huggingface/model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/checkpoint/disk.h"
#include "worker/checkpoint/manifest.h"
#include "worker/device/host_view.h"
#include "worker/huggingface/config.h"
#include "worker/huggingface/folder.h"
#include "worker/stage/registry.h"

namespace weir::huggingface {
namespace {

using nlohmann::json;

constexpr const char* kHead = "lm_head.weight";

std::vector<stage::ParameterSpec> parameters_of(const stage::Layers& layers) {
  std::vector<stage::ParameterSpec> all;
  for (const auto& layer : layers) {
    all.insert(all.end(), layer->parameters().begin(), layer->parameters().end());
  }
  return all;
}

class HuggingFaceModel final : public stage::LayerSource {
 public:
  HuggingFaceModel(Config config, const stage::ModelOptions& options, const FolderChoice& choice,
                   std::shared_ptr<const Folder> folder)
      : config_(std::move(config)),
        options_(options),
        path_(choice.path),
        copied_(config_.tied && choice.untie),
        folder_(std::move(folder)) {
    options_.vocabulary = config_.vocabulary;
    if (config_.tied) twins_.emplace(kHead, stage::table_name(config_.shape));
  }

  std::string name() const override { return config_.architecture; }
  std::string engine() const override { return "built in"; }
  std::string note() const override { return copied_ ? "tied table copied" : ""; }
  stage::Layers layers() const override { return stage::build_decoder(config_.shape, options_); }
  std::string facts() const override { return stage::facts_of(config_.shape); }
  std::string export_json() const override {
    json section = {{"folder", path_}, {"config", json::parse(config_.json)}};
    if (copied_) section["config"]["tie_word_embeddings"] = false;
    if (config_.shape.tied) section["tied"] = {kHead};
    section["transposed"] = json::array();
    for (const auto& parameter : parameters_of(layers())) {
      if (parameter.transposed) section["transposed"].push_back(parameter.name);
    }
    // A path need not be UTF-8.
    return section.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  std::string content() const override { return folder_ ? folder_->content() : "random"; }
  bool has_initial_values() const override { return folder_ != nullptr; }
  Status set_initial(const stage::ParameterSpec& parameter,
                     std::span<float> values) const override {
    return folder_->read(parameter, twins_, values);
  }
  Status check() const {
    if (!folder_) return Unit{};
    return folder_->check(parameters_of(layers()), twins_);
  }

 private:
  const Config config_;
  stage::ModelOptions options_;
  const std::string path_;
  const bool copied_;                           // a table that the folder ties
  const std::shared_ptr<const Folder> folder_;  // null: random values
  Folder::Twins twins_;
};

}  // namespace

Result<FolderModel> open_model(const FolderChoice& choice, const stage::ModelOptions& options) {
  const auto text = checkpoint::read_file(checkpoint::join(choice.path, "config.json"));
  if (!text) return invalid(text.error().message);
  auto config = read_config(*text, options.model_options);
  if (!config) return config.error().with(choice.path);
  if (options.sequence > config->longest) {
    return invalid("--seq: " + std::to_string(options.sequence) + " is above " +
                   config->longest_key + " " + std::to_string(config->longest) + " of " +
                   choice.path);
  }
  config->shape.tied = config->tied && !choice.untie;
  stage::ModelOptions sized = options;
  sized.vocabulary = config->vocabulary;
  const Status possible = stage::check_decoder(config->shape, sized);
  if (!possible) return possible.error().with(choice.path);
  std::shared_ptr<const Folder> folder;
  if (!choice.random && Folder::has_weights(choice.path)) {
    WEIR_TRY(folder, Folder::open(choice.path));
  }
  const int vocabulary = config->vocabulary;
  auto model =
      std::make_shared<HuggingFaceModel>(*std::move(config), options, choice, std::move(folder));
  WEIR_OK(model->check());
  return FolderModel{.source = std::move(model), .vocabulary = vocabulary};
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(checkpoint::join(path, "config.json"), ignored) &&
         !std::filesystem::exists(checkpoint::join(path, checkpoint::kManifestName), ignored);
}

Status load_values(const std::string& path, const stage::Model& model, stage::Stage& stage) {
  WEIR_TRY(const std::shared_ptr<const Folder> folder, Folder::open(path));
  WEIR_TRY(const stage::Layers layers, stage::layers_of(model));
  Folder::Twins twins;
  if (!folder->has(kHead)) twins.emplace(kHead, layers.front()->parameters().front().name);
  WEIR_OK(folder->check(parameters_of(layers), twins));
  for (const stage::Parameter& parameter : stage.parameters()) {
    const auto& specs = layers[static_cast<std::size_t>(parameter.layer)]->parameters();
    const auto spec = std::ranges::find(specs, parameter.name, &stage::ParameterSpec::name);
    WEIR_TRY(auto view, device::HostView<float>::to_fill(stage.device(), parameter.value));
    WEIR_OK(folder->read(*spec, twins, view.values()));
    WEIR_OK(view.write_back());
  }
  return Unit{};
}

std::string export_section(const stage::ModelOptions& options) {
  const auto shape = stage::decoder_of(options);
  if (!shape) return "";
  const auto config = config_of(*shape, options.sequence, options.vocabulary);
  return config ? json{{"config", json::parse(*config)}}.dump() : "";
}

}  // namespace weir::huggingface
