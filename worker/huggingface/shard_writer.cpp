// SPDX-License-Identifier: Apache-2.0
#include "worker/huggingface/shard_writer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

namespace weir::huggingface {
namespace {

constexpr std::size_t kAlignment = 8;

std::string beside(const std::string& path) {
  return path + ".part";
}

Error failed(const std::string& path) {
  return {Code::kUnavailable, path + ": cannot be written: " + std::strerror(errno)};
}

// In the order of the library, without spaces.
std::string header_of(const std::vector<ShardTensor>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  std::int64_t at = 0;
  for (const ShardTensor& tensor : tensors) {
    nlohmann::ordered_json& entry = header[tensor.name];
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {at, at + tensor.bytes};
    at += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t length = text.size();
  std::string all(sizeof length, '\0');
  std::memcpy(all.data(), &length, sizeof length);
  return all + text;
}

}  // namespace

Result<ShardWriter> ShardWriter::create(const std::string& path,
                                        const std::vector<ShardTensor>& tensors) {
  constexpr mode_t kMode = 0644;
  const int file = ::open(beside(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  if (file < 0) return failed(path);
  ShardWriter writer(file, path);
  WEIR_OK(writer.append(header_of(tensors)));
  return writer;
}

ShardWriter::ShardWriter(ShardWriter&& other) noexcept
    : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

ShardWriter::~ShardWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(beside(path_).c_str());
}

Status ShardWriter::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return failed(path_);
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return Unit{};
}

Status ShardWriter::finish() {
  if (::fsync(file_) != 0) return failed(path_);
  ::close(std::exchange(file_, -1));
  if (std::rename(beside(path_).c_str(), path_.c_str()) != 0) return failed(path_);
  return Unit{};
}

}  // namespace weir::huggingface
