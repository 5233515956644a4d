// SPDX-License-Identifier: Apache-2.0
#include "worker/base/file_text.h"

#include <fstream>
#include <sstream>

namespace weir {

std::string file_text(const char* path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace weir
