// SPDX-License-Identifier: Apache-2.0
// A file of tokens of any format. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "worker/data/open_file.h"
#include "worker/data/token_layout.h"

namespace weir::data {

class TokenFile {
 public:
  // Recognises, in this order: an index PATH.idx with PATH.bin, a header of llm.c, tokens of the
  // type `flat`, bytes of a text. A PATH that ends with .bin may have its index beside it, and is
  // never a text. The error names the file and the reason. Tokens that lie spread over the whole
  // file are compared with the vocabulary.
  static Result<std::unique_ptr<TokenFile>> open(const std::string& path,
                                                 std::optional<TokenType> flat, int vocabulary);

  std::uint64_t tokens() const { return layout_.tokens; }
  // Reads tokens `first`, first + 1, ... Errors are those of Dataset::sample().
  Status read(std::uint64_t first, std::span<std::int32_t> to) const;
  const std::string& path() const { return file_.path(); }
  std::string size() const;         // "4000 bytes", "4000 tokens of u16"
  std::string description() const;  // "PATH, 4000 bytes"
  // "4000 bytes, sha256:0123456789abcdef"; tokens of more than a byte also have their type.
  const std::string& content() const { return content_; }

 private:
  TokenFile(OpenFile file, TokenLayout layout, int vocabulary);
  bool is_flat() const { return layout_.format.empty(); }
  Status check_start();
  Status check_unchanged() const;

  const OpenFile file_;
  const TokenLayout layout_;
  const int vocabulary_;
  std::string content_;
  mutable std::atomic<std::int64_t> written_at_{0};  // when the content was compared last
};

}  // namespace weir::data
