// SPDX-License-Identifier: Apache-2.0
#include "worker/huggingface/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weir::huggingface {

Result<std::unique_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const auto failed = [&path](int reason) {
    const Code code = reason == ENOENT ? Code::kNotFound : Code::kUnavailable;
    return Error{code, path + ": cannot be read: " + std::strerror(reason)};
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed(errno);
  struct stat facts{};
  void* data = nullptr;
  int reason = 0;
  if (fstat(file, &facts) != 0) {
    reason = errno;
  } else if (!S_ISREG(facts.st_mode)) {
    reason = EISDIR;
  } else if (facts.st_size > 0) {
    data = mmap(nullptr, static_cast<std::size_t>(facts.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) reason = errno;
  }
  ::close(file);
  if (reason != 0) return failed(reason);
  return std::unique_ptr<const MappedFile>(
      new MappedFile(data, static_cast<std::size_t>(facts.st_size)));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace weir::huggingface
