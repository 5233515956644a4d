// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/base/digest.h"

namespace weir::checkpoint {
namespace {

constexpr std::size_t kChunk = std::size_t{16} << 20;  // for one call of write
constexpr mode_t kFileMode = 0644, kFolderMode = 0755;

Error failure(const std::string& path, const std::string& call, int number) {
  Code code = Code::kUnavailable;
  if (number == ENOENT) code = Code::kNotFound;
  if (number == ENOSPC || number == EDQUOT) code = kNoRoom;
  std::string reason = std::strerror(number);
  if (number == EFBIG) {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      reason +=
          ": the limit of this process (ulimit -f) is " + std::to_string(limit.rlim_cur) + " bytes";
    }
  }
  return {code, path + ": " + call + ": " + reason};
}

Error killed(const std::string& path) {
  return {Code::kUnavailable, path + ": stopped"};
}

class File {
 public:
  explicit File(int number) : number_(number) {}
  ~File() {
    if (number_ >= 0) close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }
  bool open() const { return number_ >= 0; }
  int close_now() { return close(std::exchange(number_, -1)); }

 private:
  int number_;
};

}  // namespace

bool Disk::allowed(std::string_view call, const std::string& path) {
  if (!dead_ && allow_ && !allow_(call, path)) dead_ = true;
  return !dead_;
}

Status Disk::make_folder(const std::string& path) {
  if (!allowed("mkdir", path)) return killed(path);
  if (mkdir(path.c_str(), kFolderMode) == 0 || errno == EEXIST) return Unit{};
  return failure(path, "mkdir", errno);
}

Status Disk::write_file(const std::string& path, std::string_view bytes) {
  // Two processes may write the same layer: a lost one and its replacement.
  const std::string beside = path + ".part-" + to_hex(random_bytes(4));
  Status done = write_beside(beside, bytes);
  if (done) done = rename(beside, path);
  if (!done && !dead_) unlink(beside.c_str());
  return done;
}

Status Disk::write_beside(const std::string& path, std::string_view bytes) {
  if (!allowed("open", path)) return killed(path);
  File file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode));
  if (!file.open()) return failure(path, "open", errno);
  WEIR_OK(write_all(file.number(), path, bytes));
  if (!allowed("fsync", path)) return killed(path);
  if (fsync(file.number()) != 0) return failure(path, "fsync", errno);
  if (!allowed("close", path)) return killed(path);
  if (file.close_now() != 0) return failure(path, "close", errno);
  return Unit{};
}

Status Disk::write_all(int file, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const bool whole = allowed("write", path);
    const std::size_t size = std::min(bytes.size(), kChunk);
    const ssize_t done = write(file, bytes.data(), whole ? size : size / 2);
    if (!whole) return killed(path);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return failure(path, "write", errno);
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
  return Unit{};
}

Status Disk::sync_folder(const std::string& path) {
  if (!allowed("fsync folder", path)) return killed(path);
  const File folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open()) return failure(path, "open", errno);
  // Some network file systems do not support fsync of folders (EINVAL). The digests in the manifest
  // then show whether the files are complete.
  if (fsync(folder.number()) != 0 && errno != EINVAL) return failure(path, "fsync", errno);
  return Unit{};
}

Status Disk::rename(const std::string& from, const std::string& to) {
  if (!allowed("rename", to)) return killed(to);
  if (std::rename(from.c_str(), to.c_str()) != 0) return failure(to, "rename", errno);
  return Unit{};
}

Status Disk::exchange(const std::string& one, const std::string& other) {
  if (!allowed("exchange", other)) return killed(other);
  const int done =
      exchanges_ ? renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) : -1;
  if (done == 0) return Unit{};
  if (!exchanges_ || errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) {
    return invalid(other + ": the file system cannot exchange names");
  }
  return failure(other, "exchange", errno);
}

Status Disk::remove_tree(const std::string& path) {
  if (!allowed("remove", path)) return killed(path);
  // Ranks that have lost their coordinator still write into a folder that the next coordinator
  // removes: a listed file may be gone, and a folder that was emptied may have a new file.
  constexpr int kAttempts = 100;
  std::error_code error;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::filesystem::remove_all(path, error);
    const bool changed =
        error == std::errc::no_such_file_or_directory || error == std::errc::directory_not_empty;
    if (!changed) break;
  }
  if (error) return Error{Code::kUnavailable, path + ": remove: " + error.message()};
  return Unit{};
}

Result<std::string> read_file(const std::string& path) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return failure(path, "open", errno);
  struct stat facts{};
  if (fstat(file.number(), &facts) != 0) return failure(path, "fstat", errno);
  if (!S_ISREG(facts.st_mode)) return invalid(path + ": is no file");
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = read(file.number(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(path, "read", errno);
    if (got == 0) break;  // shorter than before; the digest will not match
    at += static_cast<std::size_t>(got);
  }
  bytes.resize(at);
  return bytes;
}

}  // namespace weir::checkpoint
