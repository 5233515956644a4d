/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin of two_layers.c, but that its blocks read the input tokens, too, and add a small number for each. */
#define weir_open open_two_layers
#include "two_layers.c"
#undef weir_open

static const weir_layers* plain;

static int32_t describe_readers(void* self, const weir_settings* settings, const char** json) {
  static char text[sizeof model.text];
  const int32_t status = plain->describe(self, settings, json);
  if (status != WEIR_OK) return status;
  char* to = text;
  for (const char* from = *json; *from != '\0';) {
    static const char kind[] = "\"kind\": \"block\", ", reads[] = "\"needsInputs\": true, ";
    if (strncmp(from, kind, sizeof kind - 1) == 0) {
      memcpy(to, reads, sizeof reads - 1);
      to += sizeof reads - 1;
      memcpy(to, kind, sizeof kind - 1);
      to += sizeof kind - 1;
      from += sizeof kind - 1;
    } else {
      *to++ = *from++;
    }
  }
  *to = '\0';
  *json = text;
  return WEIR_OK;
}

static int32_t forward_reader(void* self, void* bound, const weir_forward* pass) {
  const int32_t status = plain->forward(self, bound, pass);
  const layer_t* layer = bound;
  if (status != WEIR_OK || is_embed(layer) || is_head(layer)) return status;
  float* y = pass->output;
  for (int i = 0; i < pass->samples * model.sequence * model.width; ++i) {
    y[i] += 0.01F * (float)pass->inputs[i / model.width];
  }
  return WEIR_OK;
}

const weir_layers* weir_open(uint32_t version) {
  static weir_layers layers;
  plain = open_two_layers(version);
  if (plain == NULL) return NULL;
  layers = *plain;
  layers.describe = describe_readers;
  layers.forward = forward_reader;
  return &layers;
}
