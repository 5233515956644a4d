// SPDX-License-Identifier: Apache-2.0
// Calls of the layers' functions. They are somebody else's code: an exception or any value may come
// back. Engine thread.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "worker/base/result.h"
#include "worker/stage/foreign/weir_layers.h"

namespace weir::stage {

// The layers' words about their last failure, as one line of at most 4 KiB; "" if they say nothing.
std::string words_of(const weir_layers& table);

// kModel if `status` or the table's error says that a call failed; kInternal: no memory.
Status status_of(const weir_layers& table, const std::string& who, std::int32_t status);

// Runs a function that returns a status. kModel: it failed, threw, or returned no known status; the
// message begins with `who`. If the layers have no memory, they give back what they keep and are
// asked once more.
template <class Function>
Status call(const weir_layers& table, const std::string& who, Function function) {
  try {
    std::int32_t status = function();
    if (status == WEIR_NO_MEMORY && table.size >= sizeof table && table.trim != nullptr) {
      table.trim(table.self);
      status = function();
    }
    return status_of(table, who, status);
  } catch (const std::exception& error) {
    return Error{Code::kModel, who + " threw an exception: " + error.what()};
  } catch (...) {
    return Error{Code::kModel, who + " threw an exception"};
  }
}

// Tells the layers of an event, if they want to know. A failure is theirs to tell in the next call.
void notice(const weir_layers& table, const std::string& json);

}  // namespace weir::stage
