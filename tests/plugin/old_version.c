/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that was built with another version of weir_layers.h. */
#include "weir_layers.h"

const weir_layers* weir_open(uint32_t version) {
  static const weir_layers layers = {.size = sizeof(weir_layers), .version = 2};
  (void)version;
  return &layers;
}
