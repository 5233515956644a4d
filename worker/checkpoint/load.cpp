// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/load.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "worker/base/digest.h"
#include "worker/checkpoint/disk.h"
#include "worker/checkpoint/tensor_file.h"

namespace weir::checkpoint {
namespace {

namespace fs = std::filesystem;

// A checkpoint with a folder but a missing file is damaged.
Error damage(const Error& error) {
  return error.code == Code::kNotFound ? invalid(error.message) : error;
}

Result<Manifest> read_manifest(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return Error{Code::kNotFound, folder + ": is not there; is it shared by all workers?"};
  }
  const Result<std::string> text = read_file(join(folder, kManifestName));
  if (!text) return damage(text.error());
  Result<Manifest> manifest = decode_manifest(*text);
  if (!manifest) return manifest.error().with(folder);
  return manifest;
}

Status check_files(const std::string& folder, const Manifest& manifest) {
  for (const FileEntry& file : manifest.files) {
    std::error_code error;
    const auto size = fs::file_size(join(folder, file.name), error);
    if (error) return invalid(file.name + ": " + error.message());
    if (size != static_cast<std::uintmax_t>(file.bytes)) {
      return invalid(file.name + ": has " + std::to_string(size) + " bytes, not " +
                     std::to_string(file.bytes));
    }
  }
  return Unit{};
}

enum class Part : unsigned char { kAll, kValues };

constexpr std::string_view kValue = "value/";
constexpr std::ptrdiff_t kMoments = 2;  // of each parameter that is trained

Status copy_tensor(const std::vector<TensorView>& tensors, const std::string& name,
                   const std::vector<std::int64_t>& shape, std::span<float> to,
                   device::Device& device) {
  const auto found = std::ranges::find(tensors, name, &TensorView::name);
  if (found == tensors.end()) return Error{Code::kConflict, "tensor " + name + " is missing"};
  if (found->shape != shape || found->bytes.size() != to.size_bytes()) {
    return Error{Code::kConflict, "tensor " + name + " has another shape"};
  }
  return device.write(to.data(), found->bytes.data(), to.size_bytes());
}

Status load_layer(const std::string& path, const FileEntry& file,
                  std::span<const stage::Parameter> parameters, Part part, device::Device& device) {
  Result<std::string> bytes = read_file(path);
  const auto matches = [&] { return bytes && sha256_hex(*bytes) == file.sha256; };
  // A network file system may show an old size or old bytes, but asks its server when a file is
  // opened. A second read therefore shows whether the file is damaged.
  bool good = matches();
  if (!good) {
    bytes = read_file(path);
    good = matches();
  }
  if (!bytes) return damage(bytes.error());
  if (!good) return invalid(path + ": has another SHA-256 than its manifest says");
  const auto tensors = decode_tensors(*bytes);
  if (!tensors) return tensors.error().with(path);
  const auto values = std::ranges::count_if(
      *tensors, [](const TensorView& tensor) { return tensor.name.starts_with(kValue); });
  const auto trained = std::ranges::count_if(parameters, std::not_fn(&stage::Parameter::frozen));
  const bool all_there = std::ssize(*tensors) == std::ssize(parameters) + kMoments * trained;
  if (values != std::ssize(parameters) || (part == Part::kAll && !all_there)) {
    return Error{Code::kConflict, path + ": is of another layer"};
  }
  for (const stage::Parameter& p : parameters) {
    Status copied = copy_tensor(*tensors, std::string(kValue) + p.name, p.shape, p.value, device);
    if (copied && part == Part::kAll && !p.frozen()) {
      copied = copy_tensor(*tensors, "adam_m/" + p.name, p.shape, p.adam_m, device);
      if (copied) copied = copy_tensor(*tensors, "adam_v/" + p.name, p.shape, p.adam_v, device);
    }
    if (!copied) return copied.error().with(path);
  }
  return Unit{};
}

Status load_folder(const std::string& folder, stage::Stage& stage, Part part,
                   const std::string& shapes = "") {
  WEIR_TRY(const Manifest manifest, read_manifest(folder));
  if (!shapes.empty() && !manifest.shapes.empty() && manifest.shapes != shapes) {
    return Error{Code::kConflict, folder + ": is of another model (" + manifest.model + ")"};
  }
  std::map<int, std::vector<stage::Parameter>> layers;
  for (const stage::Parameter& p : stage.parameters()) layers[p.layer].push_back(p);
  for (const auto& [layer, parameters] : layers) {
    const auto index = static_cast<std::size_t>(layer - manifest.first_layer);  // or far too large
    if (index >= manifest.files.size()) {
      return Error{Code::kConflict, folder + ": has no layer " + std::to_string(layer)};
    }
    const FileEntry& file = manifest.files[index];
    WEIR_OK(load_layer(join(folder, file.name), file, parameters, part, stage.device()));
  }
  return Unit{};
}

}  // namespace

Result<Scan> scan(const std::string& root) {
  std::error_code error;
  Scan found;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string folder = entry->path().string();
    const std::string name = entry->path().filename().string();
    const auto parsed = parse_folder(name);
    if (!parsed || parsed->unfinished) continue;
    Result<Manifest> manifest = read_manifest(folder);
    Status good = manifest ? check_files(folder, *manifest) : Status(manifest.error());
    if (good && manifest->step != parsed->step) {
      good = invalid("is of step " + std::to_string(manifest->step));
    }
    if (good) {
      found.whole.push_back(*std::move(manifest));
    } else {
      found.damaged.push_back(name + ": " + good.error().message);
    }
  }
  if (error) {
    const bool missing = error == std::errc::no_such_file_or_directory;
    return Error{missing ? Code::kNotFound : Code::kUnavailable, root + ": " + error.message()};
  }
  std::ranges::sort(found.whole, {}, &Manifest::step);
  return found;
}

Status load_stage(const std::string& root, std::int64_t step, stage::Stage& stage,
                  const std::string& shapes) {
  return load_folder(join(root, folder_name(step)), stage, Part::kAll, shapes);
}

Result<Found> find(const std::string& folder) {
  std::error_code error;
  if (fs::exists(join(folder, kManifestName), error)) {
    WEIR_TRY(Manifest manifest, read_manifest(folder));
    return Found{.path = folder, .manifest = std::move(manifest)};
  }
  WEIR_TRY(Scan found, scan(folder));
  if (found.whole.empty()) return Error{Code::kNotFound, folder + ": holds no checkpoint"};
  Manifest& newest = found.whole.back();
  std::string path = join(folder, folder_name(newest.step));
  return Found{.path = std::move(path), .manifest = std::move(newest)};
}

Status load_values(const std::string& folder, stage::Stage& stage) {
  WEIR_TRY(const Found found, find(folder));
  return load_folder(found.path, stage, Part::kValues);
}

}  // namespace weir::checkpoint
