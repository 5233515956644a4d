// SPDX-License-Identifier: Apache-2.0
#include "worker/data/open_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace weir::data {
namespace {

Error failure(Code code, const std::string& path, const std::string& reason) {
  return {code, "data file " + path + ": " + reason};
}

}  // namespace

OpenFile::OpenFile(std::string path, int number) : path_(std::move(path)), number_(number) {}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)),
      number_(std::exchange(other.number_, -1)),
      size_(other.size_) {}

OpenFile::~OpenFile() {
  if (number_ >= 0) close(number_);
}

Result<OpenFile> OpenFile::open(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer. Regular files ignore the
  // flag.
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    return failure(absent ? Code::kNotFound : Code::kInvalid, path, std::strerror(errno));
  }
  OpenFile file(path, number);
  struct stat facts{};
  if (fstat(number, &facts) != 0) return file.invalid(std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) return file.invalid("not a regular file");
  file.size_ = static_cast<std::uint64_t>(facts.st_size);
  return file;
}

Status OpenFile::read(std::uint64_t at, std::span<std::byte> to) const {
  for (std::size_t done = 0; done < to.size();) {
    const ssize_t got =
        pread(number_, to.data() + done, to.size() - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return gone(std::strerror(errno));
    if (got == 0) return gone("it has become shorter while it is read");
    done += static_cast<std::size_t>(got);
  }
  return Unit{};
}

Result<std::int64_t> OpenFile::written_at() const {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  struct stat facts{};
  if (fstat(number_, &facts) != 0) return gone(std::strerror(errno));
  return std::int64_t{facts.st_mtim.tv_sec} * kNanoseconds + facts.st_mtim.tv_nsec;
}

Error OpenFile::invalid(const std::string& reason) const {
  return failure(Code::kInvalid, path_, reason);
}

Error OpenFile::gone(const std::string& reason) const {
  return failure(Code::kGone, path_, reason);
}

}  // namespace weir::data
