// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/foreign/plugin.h"

#include <cstddef>
#include <dlfcn.h>

namespace weir::stage {
namespace {

constexpr auto kRequired = offsetof(weir_layers, memory);  // bytes of the table; the rest may lack

std::string dl_error() {
  const char* const text = dlerror();
  return text != nullptr ? text : "unknown error";
}

}  // namespace

Status check_table(const weir_layers* table) {
  if (table == nullptr) {
    return invalid("it cannot serve version " + std::to_string(WEIR_LAYERS_VERSION) +
                   " of weir_layers.h");
  }
  if (table->version != WEIR_LAYERS_VERSION) {
    return invalid("it is of version " + std::to_string(table->version) +
                   " of weir_layers.h, this program of " + std::to_string(WEIR_LAYERS_VERSION));
  }
  if (table->size < kRequired) {
    return invalid("its table of functions has " + std::to_string(table->size) +
                   " bytes, at least " + std::to_string(kRequired) + " are needed");
  }
  const auto missing = [](const char* name) {
    return invalid("function " + std::string(name) + " is NULL");
  };
  if (table->describe == nullptr) return missing("describe");
  if (table->bind == nullptr) return missing("bind");
  if (table->initial == nullptr) return missing("initial");
  if (table->forward == nullptr) return missing("forward");
  if (table->backward == nullptr) return missing("backward");
  if (table->drop == nullptr) return missing("drop");
  if (table->unbind == nullptr) return missing("unbind");
  if (table->error == nullptr) return missing("error");
  return Unit{};
}

Result<const weir_layers*> open_plugin(const std::string& path) {
  // A name without a slash would be looked for in the system's folders.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return invalid(dl_error());  // it names the file
  using Open = const weir_layers* (*)(std::uint32_t);
  const auto open = reinterpret_cast<Open>(dlsym(library, "weir_open"));
  if (open == nullptr) return invalid(path, "exports no function weir_open");
  const weir_layers* table = nullptr;
  try {
    table = open(WEIR_LAYERS_VERSION);
  } catch (...) {
    return invalid(path, "weir_open threw an exception");
  }
  const Status usable = check_table(table);
  if (!usable) return usable.error().with(path);
  return table;
}

}  // namespace weir::stage
