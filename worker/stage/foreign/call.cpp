// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/foreign/call.h"

#include <cstddef>
#include <cstring>

#include "worker/base/log.h"

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

void notice(const weir_layers& table, const std::string& json) {
  if (table.size < offsetof(weir_layers, notice) + sizeof table.notice) return;
  if (table.notice == nullptr) return;
  try {
    table.notice(table.self, json.c_str());
  } catch (...) {
    log_warn("stage", "the model's function notice threw an exception");
  }
}

}  // namespace weir::stage
