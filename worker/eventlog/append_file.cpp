// SPDX-License-Identifier: Apache-2.0
#include "worker/eventlog/append_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace weir::eventlog {
namespace {

Error failure(const std::string& path, int number) {
  const Code code = number == EEXIST ? Code::kConflict : Code::kUnavailable;
  return {code, path + ": " + std::error_code(number, std::generic_category()).message()};
}

}  // namespace

Result<std::unique_ptr<AppendFile>> AppendFile::open(const std::string& path, bool must_be_new) {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (must_be_new ? O_EXCL : 0);
  const int descriptor = ::open(path.c_str(), flags, 0644);
  if (descriptor < 0) return failure(path, errno);
  struct stat about{};
  if (::fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) {
    ::close(descriptor);
    return Error{Code::kInvalid, path + ": no file"};
  }
  return std::unique_ptr<AppendFile>(new AppendFile(path, descriptor, about.st_size));
}

AppendFile::~AppendFile() {
  ::close(descriptor_);
}

Status AppendFile::append(std::string_view text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::pwrite(descriptor_, text.data() + done, text.size() - done,
                                   size_ + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int number = count < 0 ? errno : ENOSPC;
      static_cast<void>(::ftruncate(descriptor_, size_));
      return failure(path_, number);
    }
    done += static_cast<std::size_t>(count);
  }
  size_ += static_cast<std::int64_t>(text.size());
  return Unit{};
}

Status AppendFile::cut(std::int64_t size) {
  if (::ftruncate(descriptor_, size) != 0) return failure(path_, errno);
  size_ = size;
  return Unit{};
}

Result<std::string> AppendFile::read(std::int64_t offset, std::size_t count) const {
  std::string text(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor_, text.data() + done, count - done,
                                offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(path_, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace weir::eventlog
