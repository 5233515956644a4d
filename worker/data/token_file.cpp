// SPDX-License-Identifier: Apache-2.0
// Any file, read as bytes. Window w holds the bytes w*T .. w*T+T; its last byte is only a target.
// So every byte is a target once per epoch, except for up to T bytes at the end of the file. The
// file is read and not mapped: if it shrinks, that is an error instead of a signal.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/digest.h"
#include "worker/base/random.h"
#include "worker/data/dataset.h"
#include "worker/data/permutation.h"

namespace weir::data {
namespace {

// For the hash of a file's content: small files are hashed completely. Of larger ones this many
// blocks are hashed, evenly spread from the first byte to the last: 1 MB is read quickly even from
// a remote server.
constexpr std::size_t kHashedBlocks = 256, kBlock = 4096;
// Hex digits of the hash, enough against mistakes; it is no protection against attacks.
constexpr std::size_t kDigits = 16;

class OpenFile {
 public:
  explicit OpenFile(int number) : number_(number) {}
  OpenFile(OpenFile&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (number_ >= 0) close(number_);
  }

  // Appends `size` bytes from `at`. Returns an errno, or -1 if the file ends earlier.
  int read_at(std::size_t at, std::size_t size, std::string& to) const {
    const std::size_t before = to.size();
    to.resize(before + size);
    for (std::size_t done = 0; done < size;) {
      const ssize_t got =
          pread(number_, to.data() + before + done, size - done, static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno;
      if (got == 0) return -1;
      done += static_cast<std::size_t>(got);
    }
    return 0;
  }
  int facts(struct stat& facts) const { return fstat(number_, &facts) == 0 ? 0 : errno; }

 private:
  int number_;
};

// Hash of the first `size` bytes; "" if they cannot be read.
std::string content_of(const OpenFile& file, std::size_t size) {
  std::string hashed;
  int error = 0;
  if (size <= kHashedBlocks * kBlock) {
    error = file.read_at(0, size, hashed);
  } else {
    constexpr std::size_t kGaps = kHashedBlocks - 1;
    const std::size_t last = size - kBlock;
    for (std::size_t i = 0; i <= kGaps && error == 0; ++i) {
      // This is last * i / kGaps without overflow.
      error = file.read_at(last / kGaps * i + last % kGaps * i / kGaps, kBlock, hashed);
    }
  }
  if (error != 0) return "";
  return std::to_string(size) + " bytes, sha256:" + sha256_hex(hashed).substr(0, kDigits);
}

// Time of the last write to a file, in nanoseconds.
std::int64_t written_at(const struct stat& facts) {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return facts.st_mtim.tv_sec * kNanoseconds + facts.st_mtim.tv_nsec;
}

class TokenFile final : public Dataset {
 public:
  TokenFile(std::string path, OpenFile file, const struct stat& facts, std::string content,
            int sequence, std::uint64_t seed)
      : path_(std::move(path)),
        file_(std::move(file)),
        size_(static_cast<std::size_t>(facts.st_size)),
        sequence_(static_cast<std::size_t>(sequence)),
        windows_((size_ - 1) / sequence_),
        seed_(seed),
        content_(std::move(content)),
        written_at_(written_at(facts)) {}

  Status sample(std::int64_t step, int index, int global_batch, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets) const override {
    WEIR_CHECK(inputs.size() == sequence_ && targets.size() == sequence_, "one sequence");
    WEIR_CHECK(step >= 0 && index >= 0 && index < global_batch, "a sample of the step");
    const auto id = static_cast<std::uint64_t>(step * global_batch + index);
    // A new order for each epoch.
    const Permutation order(windows_, mix_seed(seed_, id / windows_));
    std::string window;
    const int error = file_.read_at(order(id % windows_) * sequence_, sequence_ + 1, window);
    if (error > 0) return gone(std::strerror(error));
    if (error < 0) return gone("it has become shorter while it is read");
    WEIR_OK(check_unchanged());
    for (std::size_t t = 0; t < sequence_; ++t) {
      inputs[t] = static_cast<unsigned char>(window[t]);
      targets[t] = static_cast<unsigned char>(window[t + 1]);
    }
    return Unit{};
  }

  std::string description() const override {
    return path_ + ", " + std::to_string(size_) + " bytes, " + std::to_string(windows_) +
           " windows of " + std::to_string(sequence_);
  }
  std::string content() const override { return content_; }

 private:
  Error gone(const std::string& reason) const {
    return {Code::kGone, "data file " + path_ + ": " + reason};
  }

  // A write may have appended to the file, which is allowed, or changed the content on which all
  // ranks have agreed.
  Status check_unchanged() const {
    struct stat facts{};
    if (const int error = file_.facts(facts); error != 0) return gone(std::strerror(error));
    const std::int64_t now = written_at(facts);
    if (now == written_at_.load(std::memory_order_relaxed)) return Unit{};
    if (content_of(file_, size_) != content_)
      return gone("its content has changed while it is read");
    written_at_.store(now, std::memory_order_relaxed);
    return Unit{};
  }

  const std::string path_;
  const OpenFile file_;
  const std::size_t size_;
  const std::size_t sequence_;
  const std::uint64_t windows_;
  const std::uint64_t seed_;
  const std::string content_;
  mutable std::atomic<std::int64_t> written_at_;  // when the content was compared last
};

Error failure(const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kInvalid;
  return {code, "data file " + path + ": " + std::strerror(error)};
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_token_file(const std::string& path, int sequence,
                                                 std::uint64_t seed) {
  if (sequence < 1) {
    return Error{Code::kInvalid, "sequence: " + std::to_string(sequence) + " is below 1"};
  }
  // Without O_NONBLOCK, opening a named pipe would wait for a writer. Regular files ignore the
  // flag.
  const int number = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) return failure(path, errno);
  OpenFile file(number);
  struct stat facts{};
  if (const int error = file.facts(facts); error != 0) return failure(path, error);
  const auto invalid = [&](const std::string& reason) {
    return Error{Code::kInvalid, "data file " + path + ": " + reason};
  };
  if (!S_ISREG(facts.st_mode)) return invalid("not a regular file");
  const std::int64_t least = std::int64_t{sequence} + 1;
  if (facts.st_size < least) {
    return invalid(std::to_string(facts.st_size) + " bytes, less than one window of " +
                   std::to_string(least));
  }
  std::string content = content_of(file, static_cast<std::size_t>(facts.st_size));
  if (content.empty()) return invalid("cannot be read");
  return std::unique_ptr<Dataset>(std::make_unique<TokenFile>(path, std::move(file), facts,
                                                              std::move(content), sequence, seed));
}

}  // namespace weir::data
