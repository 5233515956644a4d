// SPDX-License-Identifier: Apache-2.0
#include "worker/app/describe.h"

#include <cstdio>

#include "worker/base/text.h"
#include "worker/stage/registry.h"

namespace weir::app {
namespace {

std::string size_text(std::int64_t bytes) {
  constexpr double kStep = 1000;
  auto size = static_cast<double>(bytes);
  if (size < kStep) return std::to_string(bytes) + " B";
  for (const char* unit : {"kB", "MB"}) {
    size /= kStep;
    if (size < kStep) return format("%.1f %s", size, unit);
  }
  return format("%.1f GB", size / kStep);
}

std::string millions(std::int64_t count) {
  return format("%.1f M", static_cast<double>(count) / 1e6);
}

}  // namespace

Result<std::string> description_of(const stage::Model& model) {
  WEIR_TRY(const stage::Layers layers, stage::layers_of(model));
  std::int64_t frozen = 0, input = 0;
  std::string rows;
  for (const auto& layer : layers) {
    const stage::LayerInfo& info = layer->info();
    std::int64_t parameters = 0;
    for (const stage::ParameterSpec& spec : layer->parameters()) {
      parameters += spec.count();
      if (!spec.trainable) frozen += spec.count();
    }
    rows += format("%-16s %-20s %12lld %14s %16s\n", info.id.c_str(), info.kind.c_str(),
                   static_cast<long long>(parameters),
                   size_text(info.activation_bytes_per_sample - input).c_str(),
                   size_text(info.transient_bytes_per_sample).c_str());
    input = info.output_bytes_per_sample;
  }
  std::string text = model.options.name + ", " + std::to_string(layers.size()) + " layers, " +
                     millions(model.parameters) + " parameters";
  if (frozen > 0) text += ", " + millions(frozen) + " of them frozen";
  const std::string engine = model.source ? model.source->engine() : "built in";
  if (!engine.empty()) text += ", " + engine;
  if (model.source && !model.source->note().empty()) text += "; " + model.source->note();
  return text + "\n" +
         format("%-16s %-20s %12s %14s %16s\n", "layer", "kind", "parameters", "kept a sample",
                "needed a sample") +
         rows;
}

}  // namespace weir::app
