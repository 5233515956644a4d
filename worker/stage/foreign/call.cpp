// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/foreign/call.h"

#include <cstring>

namespace weir::stage {

std::string words_of(const weir_layers& table) {
  constexpr std::size_t kLongest = 4096;
  const char* text = nullptr;
  try {
    text = table.error(table.self);
  } catch (...) {
    return "";
  }
  if (text == nullptr) return "";
  std::string line(text, strnlen(text, kLongest));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return line;
}

Status status_of(const weir_layers& table, const std::string& who, std::int32_t status) {
  if (status == WEIR_OK) return Unit{};
  const std::string words = words_of(table);
  const std::string said = words.empty() ? "" : ": " + words;
  if (status == WEIR_NO_MEMORY) return Error{Code::kInternal, who + " has no memory left" + said};
  if (status == WEIR_FAILED) return Error{Code::kModel, who + " failed" + said};
  return Error{Code::kModel, who + " returned " + std::to_string(status) +
                                 ", which is no status of weir_layers.h" + said};
}

}  // namespace weir::stage
