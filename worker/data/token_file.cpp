// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_file.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/base/digest.h"
#include "worker/base/log.h"

namespace weir::data {
namespace {

// For the hash of a file's content: small files are hashed completely. Of larger ones this many
// blocks are hashed, evenly spread from the first byte to the last: 1 MB is read quickly even from
// a remote server.
constexpr std::uint64_t kHashedBlocks = 256, kHashedBlock = 4096;
// Hex digits of the hash, enough against mistakes; it is no protection against attacks.
constexpr std::size_t kDigits = 16;
constexpr int kByteValues = 256;

// Place i of kHashedBlocks that are spread from 0 to `last`: last * i / (kHashedBlocks - 1) without
// overflow.
std::uint64_t spread(std::uint64_t last, std::uint64_t i) {
  constexpr std::uint64_t kGaps = kHashedBlocks - 1;
  return last / kGaps * i + last % kGaps * i / kGaps;
}

// Hash of the bytes with which the file was opened.
Result<std::string> hash_of(const OpenFile& file) {
  const std::uint64_t size = file.size();
  std::vector<std::byte> hashed(std::min(size, kHashedBlocks * kHashedBlock));
  if (size == hashed.size()) {
    WEIR_OK(file.read(0, hashed));
  } else {
    for (std::uint64_t i = 0; i < kHashedBlocks; ++i) {
      WEIR_OK(file.read(spread(size - kHashedBlock, i),
                        std::span(hashed).subspan(i * kHashedBlock, kHashedBlock)));
    }
  }
  const std::string_view text(reinterpret_cast<const char*>(hashed.data()), hashed.size());
  return "sha256:" + sha256_hex(text).substr(0, kDigits);
}

Result<std::string> content_of(const OpenFile& file, TokenType type) {
  WEIR_TRY(const std::string hash, hash_of(file));
  const std::string of = type == TokenType::kU8 ? "" : " of " + name_of(type);
  return std::to_string(file.size()) + " bytes" + of + ", " + hash;
}

// A reason that does not name the file yet.
Error in_file(const OpenFile& file, const Error& error) {
  return error.code == Code::kInvalid ? file.invalid(error.message) : error;
}

// The path without .bin, or "" if it does not end so.
std::string stem_of(const std::string& path) {
  constexpr std::string_view kEnd = ".bin";
  return path.ends_with(kEnd) ? path.substr(0, path.size() - kEnd.size()) : "";
}

struct Found {
  OpenFile file;
  TokenLayout layout;
};

Result<Found> open_megatron(const OpenFile& index, const std::string& path) {
  WEIR_TRY(OpenFile file, OpenFile::open(path));
  auto layout = megatron_layout(index, file.size());
  if (!layout) return in_file(index, layout.error());
  return Found{std::move(file), *std::move(layout)};
}

Result<Found> open_plain(const std::string& path, std::optional<TokenType> flat, int vocabulary) {
  WEIR_TRY(OpenFile file, OpenFile::open(path));
  auto llm_c = llm_c_layout(file);
  if (!llm_c) return in_file(file, llm_c.error());
  if (*llm_c) return Found{std::move(file), **std::move(llm_c)};
  if (flat) {
    auto layout = flat_layout(file.size(), *flat);
    if (!layout) return in_file(file, layout.error());
    return Found{std::move(file), *std::move(layout)};
  }
  if (!stem_of(path).empty()) {
    return file.invalid(
        "has neither an index beside it nor a header of llm.c; --data-type tells "
        "the type of its tokens (u8: bytes)");
  }
  if (vocabulary < kByteValues) {
    return file.invalid("bytes of a text need a vocabulary of 256, not " +
                        std::to_string(vocabulary) + " (--vocab)");
  }
  if (vocabulary > kByteValues) {  // allowed, to time a model in its usual size on any text
    log_warn("data", "the vocabulary is larger than the 256 values of bytes; the rest is never met",
             {{"file", path}, {"vocabulary", vocabulary}});
  }
  WEIR_TRY(TokenLayout layout, flat_layout(file.size(), TokenType::kU8));
  return Found{std::move(file), std::move(layout)};
}

Result<Found> find(const std::string& path, std::optional<TokenType> flat, int vocabulary) {
  const std::string stem = stem_of(path);
  for (const std::string& base : {path, stem}) {
    if (base.empty()) continue;
    const auto index = OpenFile::open(base + ".idx");
    if (index) return open_megatron(*index, base + ".bin");
    if (index.error().code != Code::kNotFound) return index.error();
  }
  Result<Found> plain = open_plain(path, flat, vocabulary);
  const bool absent = !plain && plain.error().code == Code::kNotFound;
  if (absent && OpenFile::open(path + ".bin")) {
    return Error{Code::kNotFound,
                 plain.error().message + "; " + path + ".bin has no index " + path + ".idx"};
  }
  return plain;
}

}  // namespace

TokenFile::TokenFile(OpenFile file, TokenLayout layout, int vocabulary)
    : file_(std::move(file)), layout_(std::move(layout)), vocabulary_(vocabulary) {}

Result<std::unique_ptr<TokenFile>> TokenFile::open(const std::string& path,
                                                   std::optional<TokenType> flat, int vocabulary) {
  WEIR_TRY(Found found, find(path, flat, vocabulary));
  std::unique_ptr<TokenFile> opened(
      new TokenFile(std::move(found.file), std::move(found.layout), vocabulary));
  const Status start = opened->check_start();
  // At the start a file that cannot be used is a wrong option.
  if (!start) return Error{Code::kInvalid, start.error().message};
  return opened;
}

Status TokenFile::check_start() {
  WEIR_TRY(written_at_, file_.written_at());
  WEIR_TRY(content_, content_of(file_, layout_.type));
  const std::uint64_t count = std::min(layout_.tokens, kHashedBlock / bytes_of(layout_.type));
  std::vector<std::int32_t> some(count);
  for (std::uint64_t i = 0; i < kHashedBlocks; ++i)
    WEIR_OK(read(spread(tokens() - count, i), some));
  return Unit{};
}

Status TokenFile::read(std::uint64_t first, std::span<std::int32_t> to) const {
  const Status read = read_tokens(file_, layout_, first, vocabulary_, to);
  if (!read && read.error().code == Code::kNotFound) {
    return Error{Code::kNotFound, file_.invalid(read.error().message + " (--vocab)").message};
  }
  WEIR_OK(read);
  return check_unchanged();
}

// A write may have appended to the file, which is allowed, or changed the content on which all
// ranks have agreed.
Status TokenFile::check_unchanged() const {
  WEIR_TRY(const std::int64_t now, file_.written_at());
  if (now == written_at_.load(std::memory_order_relaxed)) return Unit{};
  const auto content = content_of(file_, layout_.type);
  if (!content || *content != content_)
    return file_.gone("its content has changed while it is read");
  written_at_.store(now, std::memory_order_relaxed);
  return Unit{};
}

std::string TokenFile::size() const {
  const std::string count = std::to_string(layout_.tokens);
  return is_flat() && layout_.type == TokenType::kU8
             ? count + " bytes"
             : count + " tokens of " + name_of(layout_.type);
}

std::string TokenFile::description() const {
  return path() + (is_flat() ? "" : " (" + layout_.format + ")") + ", " + size();
}

}  // namespace weir::data
