// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/foreign/foreign_model.h"

#include <utility>

#include "worker/stage/foreign/call.h"
#include "worker/stage/foreign/description.h"
#include "worker/stage/foreign/foreign_layer.h"
#include "worker/stage/foreign/plugin.h"

namespace weir::stage {
namespace {

class ForeignModel final : public LayerSource {
 public:
  ForeignModel(const weir_layers& table, ModelDescription description)
      : table_(table), description_(std::move(description)) {}

  std::string name() const override { return description_.name; }
  std::string engine() const override { return description_.engine; }
  std::string note() const override { return description_.note; }
  std::string export_json() const override { return description_.export_json; }
  Layers layers() const override {
    Layers made;
    for (const LayerDescription& layer : description_.layers) {
      made.push_back(make_foreign_layer(table_, static_cast<int>(made.size()), layer));
    }
    return made;
  }

 private:
  const weir_layers& table_;
  const ModelDescription description_;
};

}  // namespace

Result<std::shared_ptr<const LayerSource>> describe_foreign(const weir_layers& table,
                                                            const ModelOptions& options,
                                                            const device::Device& device) {
  WEIR_OK(check_table(&table));
  const weir_settings settings{
      .size = sizeof(weir_settings),
      .version = WEIR_LAYERS_VERSION,
      .sequence = options.sequence,
      .vocabulary = options.vocabulary,
      .precision = options.precision == Precision::kBf16 ? WEIR_BF16 : WEIR_F32,
      .threads = device.threads(),
      .device = -1,
      .training = 1,
      .seed = options.seed,
      .stream = nullptr,
      .model = options.name.c_str(),
      .options = options.model_options.c_str()};
  const char* text = nullptr;
  const Status described =
      call(table, "describe", [&] { return table.describe(table.self, &settings, &text); });
  // Before training begins, a wrong model is a wrong configuration.
  if (!described) return invalid(described.error().message);
  if (text == nullptr) return invalid("describe returned no text");
  WEIR_TRY(ModelDescription description,
           read_description(text, options.precision, options.vocabulary));
  return std::shared_ptr<const LayerSource>(
      std::make_shared<ForeignModel>(table, std::move(description)));
}

}  // namespace weir::stage
