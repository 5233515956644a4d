// SPDX-License-Identifier: Apache-2.0
#include "worker/app/stored_layers.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/base/digest.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/huggingface/mapped_file.h"

namespace weir::app {
namespace {

using huggingface::MappedFile;

// Offered memory is only read; the type is that of a fetch, which writes.
std::span<std::byte> bytes_of(std::string_view text) {
  return {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(text.data())),  // NOLINT
          text.size()};
}

}  // namespace

Result<engine::StoredLayers> stored_layers(const std::string& root, std::int64_t step,
                                           schedule::LayerRange layers, Layout layout) {
  WEIR_TRY(const checkpoint::Found found,
           checkpoint::find(checkpoint::join(root, checkpoint::folder_name(step))));
  const auto files = std::make_shared<std::vector<std::unique_ptr<const MappedFile>>>();
  engine::StoredLayers stored;
  for (int layer = layers.first; layer <= layers.last; ++layer) {
    const auto index = static_cast<std::size_t>(layer - found.manifest.first_layer);
    if (layer < found.manifest.first_layer || index >= found.manifest.files.size()) {
      return Error{Code::kConflict, found.path + ": has no layer " + std::to_string(layer)};
    }
    const checkpoint::FileEntry& entry = found.manifest.files[index];
    const std::string path = checkpoint::join(found.path, entry.name);
    WEIR_TRY(std::unique_ptr<const MappedFile> file, MappedFile::open(path));
    const std::string_view text = file->view();
    transport::LayerMemory memory{.layer = layer, .parts = {}};
    if (layout == Layout::kFiles) {
      memory.parts.push_back(bytes_of(text));
    } else {
      if (sha256_hex(text) != entry.sha256) {
        return invalid(path + ": has another SHA-256 than its manifest says");
      }
      const auto tensors = checkpoint::decode_tensors(text);
      if (!tensors) return tensors.error().with(path);
      for (const checkpoint::TensorView& tensor : *tensors) {
        if (!tensor.bytes.empty()) memory.parts.push_back(bytes_of(tensor.bytes));
      }
    }
    stored.memory.push_back(std::move(memory));
    files->push_back(std::move(file));
  }
  stored.keeps = files;
  return stored;
}

}  // namespace weir::app
