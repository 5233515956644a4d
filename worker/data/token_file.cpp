// SPDX-License-Identifier: Apache-2.0
// Any file, byte by byte. Window w holds the bytes w*T .. w*T+T (its last byte is only a target),
// so every byte is a target once an epoch, except up to T at the end of the file. The file must not
// shrink while it is mapped.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/random.h"
#include "worker/data/dataset.h"
#include "worker/data/permutation.h"

namespace weir::data {
namespace {

// A read-only map of a whole file.
class FileMap {
 public:
  FileMap(const unsigned char* data, std::size_t size) : data_(data), size_(size) {}
  FileMap(FileMap&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FileMap& operator=(FileMap&&) = delete;
  ~FileMap() {
    if (data_ != nullptr) munmap(const_cast<unsigned char*>(data_), size_);
  }
  const unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  const unsigned char* data_;
  std::size_t size_;
};

class TokenFile final : public Dataset {
 public:
  TokenFile(std::string path, FileMap map, int sequence, std::uint64_t seed)
      : path_(std::move(path)),
        map_(std::move(map)),
        sequence_(static_cast<std::size_t>(sequence)),
        windows_((map_.size() - 1) / sequence_),
        seed_(seed) {}

  void sample(std::int64_t step, int index, int global_batch, std::span<std::int32_t> inputs,
              std::span<std::int32_t> targets) const override {
    WEIR_CHECK(inputs.size() == sequence_ && targets.size() == sequence_, "one sequence");
    WEIR_CHECK(step >= 0 && index >= 0 && index < global_batch, "a sample of the step");
    const auto id = static_cast<std::uint64_t>(step * global_batch + index);
    const Permutation order(windows_, mix_seed(seed_, id / windows_));  // one for each epoch
    const unsigned char* window = map_.data() + order(id % windows_) * sequence_;
    for (std::size_t t = 0; t < sequence_; ++t) {
      inputs[t] = window[t];
      targets[t] = window[t + 1];
    }
  }

  std::string description() const override {
    return path_ + ", " + std::to_string(map_.size()) + " bytes, " + std::to_string(windows_) +
           " windows of " + std::to_string(sequence_);
  }

 private:
  const std::string path_;
  const FileMap map_;
  const std::size_t sequence_;
  const std::uint64_t windows_;
  const std::uint64_t seed_;
};

Error failure(const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kInvalid;
  return {code, "data file " + path + ": " + std::strerror(error)};
}

Result<FileMap> map_file(const std::string& path, std::size_t least) {
  // Without O_NONBLOCK a named pipe would wait for a writer; a regular file ignores it.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return failure(path, errno);
  struct stat facts{};
  const int error = fstat(file, &facts) == 0 ? 0 : errno;
  const auto size = static_cast<std::size_t>(facts.st_size);
  std::string reason;
  if (error != 0) {
    reason = std::strerror(error);
  } else if (!S_ISREG(facts.st_mode)) {
    reason = "not a regular file";
  } else if (size < least) {
    reason = std::to_string(size) + " bytes, less than one window of " + std::to_string(least);
  }
  if (!reason.empty()) {
    close(file);
    return Error{Code::kInvalid, "data file " + path + ": " + reason};
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int map_error = data == MAP_FAILED ? errno : 0;
  close(file);
  if (map_error != 0) return failure(path, map_error);
  return FileMap(static_cast<const unsigned char*>(data), size);
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_token_file(const std::string& path, int sequence,
                                                 std::uint64_t seed) {
  if (sequence < 1) {
    return Error{Code::kInvalid, "sequence: " + std::to_string(sequence) + " is below 1"};
  }
  WEIR_TRY(FileMap map, map_file(path, static_cast<std::size_t>(sequence) + 1));
  return std::unique_ptr<Dataset>(
      std::make_unique<TokenFile>(path, std::move(map), sequence, seed));
}

}  // namespace weir::data
