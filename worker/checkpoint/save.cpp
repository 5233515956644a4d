// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/save.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <utility>

#include "worker/base/digest.h"
#include "worker/device/system_memory.h"

namespace weir::checkpoint {
namespace {

// Suffix of a complete one that is being replaced.
constexpr std::string_view kReplaced = ".replaced";

Status check_sizes(const std::string& folder, const Manifest& manifest) {
  for (const FileEntry& file : manifest.files) {
    std::error_code error;
    const auto size = std::filesystem::file_size(join(folder, file.name), error);
    if (error) {
      return invalid(join(folder, file.name) + ": " + error.message() +
                     "; is the folder shared by all workers?");
    }
    if (size != static_cast<std::uintmax_t>(file.bytes)) {
      return invalid(join(folder, file.name) + ": has " + std::to_string(size) + " bytes, not " +
                     std::to_string(file.bytes));
    }
  }
  return Unit{};
}

Status remove_folders(Disk& disk, const std::string& root,
                      const std::function<bool(const FolderName&)>& useless) {
  std::error_code error;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto name = parse_folder(entry->path().filename().string());
    if (name && useless(*name)) found.push_back(entry->path().string());
  }
  if (error) return Error{Code::kUnavailable, root + ": " + error.message()};
  for (const std::string& path : found) WEIR_OK(disk.remove_tree(path));
  return Unit{};
}

// Training has reached this step a second time; some rank could not read the old checkpoint. The
// old one is not touched until the new one has its name. With exchange() there is always a
// checkpoint with that name; without it repair() restores the old one.
Status replace(Disk& disk, const std::string& unfinished, const std::string& final_name) {
  const Status exchanged = disk.exchange(unfinished, final_name);
  if (exchanged) return disk.remove_tree(unfinished);
  if (exchanged.error().code != Code::kInvalid) return exchanged;
  const std::string old = final_name + std::string(kReplaced);
  WEIR_OK(disk.rename(final_name, old));
  WEIR_OK(disk.rename(unfinished, final_name));
  return disk.remove_tree(old);
}

// Host memory for a copy. On a host device it comes from the device, so that the device's limit,
// which is the container's, holds. Otherwise the free memory of the container is checked first:
// Linux would grant more than there is and kill the process later.
device::Buffer memory_of(device::Device& device, std::size_t bytes) {
  if (device.is_host()) return device.allocate(bytes);
  if (static_cast<std::int64_t>(bytes) > device::read_system_memory().free) return {};
  auto* const data = new (std::nothrow) std::byte[bytes];
  if (data == nullptr) return {};
  return {std::shared_ptr<std::byte>(data, [](const std::byte* all) { delete[] all; }), bytes};
}

}  // namespace

Result<std::vector<LayerImage>> copy_layers(stage::Stage& stage,
                                            const std::function<bool(int layer)>& mine) {
  std::map<int, std::vector<Tensor>> layers;
  for (const stage::Parameter& parameter : stage.parameters()) {
    if (!mine(parameter.layer)) continue;
    std::vector<Tensor>& tensors = layers[parameter.layer];
    tensors.push_back({"value/" + parameter.name, parameter.shape, parameter.value});
    if (parameter.frozen()) continue;
    tensors.push_back({"adam_m/" + parameter.name, parameter.shape, parameter.adam_m});
    tensors.push_back({"adam_v/" + parameter.name, parameter.shape, parameter.adam_v});
  }
  const auto read = [&device = stage.device()](void* to, const void* from, std::size_t bytes) {
    return device.read(to, from, bytes);
  };
  std::vector<LayerImage> images;
  for (const auto& [layer, tensors] : layers) {
    const auto allocate = [&stage](std::size_t bytes) { return memory_of(stage.device(), bytes); };
    WEIR_TRY(FileImage file, encode_tensors(tensors, read, allocate));
    images.push_back({.layer = layer, .file = std::move(file)});
  }
  return images;
}

Result<std::vector<FileEntry>> write_layers(Disk& disk, const std::string& root, std::int64_t step,
                                            std::span<const LayerImage> images) {
  const std::string folder = join(root, unfinished_name(step));
  WEIR_OK(disk.make_folder(folder));
  std::vector<FileEntry> files;
  for (const LayerImage& image : images) {
    const std::string_view bytes = image.file.view();
    const std::string name = layer_file(image.layer);
    if (!all_finite(image.file)) return invalid(name + ": holds values that are not finite");
    WEIR_OK(disk.write_file(join(folder, name), bytes));
    files.push_back({.name = name,
                     .bytes = static_cast<std::int64_t>(bytes.size()),
                     .sha256 = sha256_hex(bytes)});
  }
  WEIR_OK(disk.sync_folder(folder));
  return files;
}

Status commit(Disk& disk, const std::string& root, const Manifest& manifest) {
  const std::string unfinished = join(root, unfinished_name(manifest.step));
  const std::string final_name = join(root, folder_name(manifest.step));
  WEIR_OK(check_sizes(unfinished, manifest));
  WEIR_OK(disk.write_file(join(unfinished, kManifestName), encode(manifest)));
  WEIR_OK(disk.sync_folder(unfinished));
  if (std::error_code ignored; std::filesystem::exists(final_name, ignored)) {
    WEIR_OK(replace(disk, unfinished, final_name));
  } else {
    WEIR_OK(disk.rename(unfinished, final_name));
  }
  return disk.sync_folder(root);
}

Status remove_others(Disk& disk, const std::string& root, std::span<const std::int64_t> keep,
                     std::int64_t writing) {
  return remove_folders(disk, root, [&](const FolderName& name) {
    const bool kept = std::ranges::find(keep, name.step) != keep.end();
    return name.unfinished ? name.step != writing : !kept;
  });
}

Status remove_steps(Disk& disk, const std::string& root, std::span<const std::int64_t> complete,
                    std::span<const std::int64_t> unfinished) {
  return remove_folders(disk, root, [&](const FolderName& name) {
    const auto& steps = name.unfinished ? unfinished : complete;
    return std::ranges::find(steps, name.step) != steps.end();
  });
}

Status repair(Disk& disk, const std::string& root) {
  WEIR_OK(remove_folders(disk, root, [](const FolderName& name) { return name.unfinished; }));
  std::error_code error;
  std::vector<std::string> replaced;
  for (std::filesystem::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string path = entry->path().string();
    if (path.ends_with(kReplaced)) replaced.push_back(std::move(path));
  }
  if (error) return Error{Code::kUnavailable, root + ": " + error.message()};
  for (const std::string& old : replaced) {
    const std::string name = old.substr(0, old.size() - kReplaced.size());
    if (!parse_folder(std::filesystem::path(name).filename().string())) continue;
    std::error_code ignored;
    const bool done = std::filesystem::exists(name, ignored);
    WEIR_OK(done ? disk.remove_tree(old) : disk.rename(old, name));
  }
  return Unit{};
}

}  // namespace weir::checkpoint
