// SPDX-License-Identifier: Apache-2.0
// Files of llm.c (dev/data/data_common.py): a header of 256 i32 (magic number, version, count of
// tokens, zeros), then u16 tokens of GPT-2 or u32 tokens of Llama 3.
#include <array>
#include <cstring>

#include "worker/data/token_layout.h"

namespace weir::data {
namespace {

constexpr std::uint64_t kHeaderBytes = 256 * 4;

struct Kind {
  std::int32_t magic, version;
  TokenType type;
};
constexpr std::array<Kind, 2> kKinds = {
    {{20240520, 1, TokenType::kU16}, {20240801, 7, TokenType::kU32}}};

}  // namespace

Result<std::optional<TokenLayout>> llm_c_layout(const Bytes& file) {
  std::array<std::int32_t, 3> head{};  // magic, version, count
  if (file.size() < sizeof head) return std::optional<TokenLayout>();
  WEIR_OK(file.read(0, std::as_writable_bytes(std::span(head))));
  const auto [magic, version, count] = head;
  for (const Kind& kind : kKinds) {
    if (magic != kind.magic) continue;
    const std::string begins = "begins with llm.c's " + std::to_string(magic);
    if (version != kind.version) {
      return invalid(begins + ", but version " + std::to_string(version) + " is not " +
                     std::to_string(kind.version));
    }
    if (count < 0 ||
        file.size() != kHeaderBytes + static_cast<std::uint64_t>(count) * bytes_of(kind.type)) {
      return invalid(begins + ", but its " + std::to_string(file.size()) +
                     " bytes are not a header and " + std::to_string(count) + " tokens of " +
                     name_of(kind.type));
    }
    return std::optional(TokenLayout{.type = kind.type,
                                     .begin = kHeaderBytes,
                                     .tokens = static_cast<std::uint64_t>(count),
                                     .format = "llm.c"});
  }
  return std::optional<TokenLayout>();
}

}  // namespace weir::data
