/* SPDX-License-Identifier: Apache-2.0 */
/* A complete plugin in C: a table of tokens, blocks y = x + tanh(x W^T + b), and a head with softmax
   and cross entropy. Options: {"width": 32, "blocks": 2}. Only float32 on the host.
     cc -std=c11 -shared -fPIC -I <folder of weir_layers.h> -o libtwo_layers.so two_layers.c -lm
     weir-worker --plugin=./libtwo_layers.so --model-option width=64 */
#include "weir_layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMETERS = 2 };

/* What a block keeps between its forward and its backward. */
typedef struct kept {
  uint64_t ticket;
  struct kept* next;
  const float* input;         /* Weir's, valid until drop */
  const int32_t* own_tokens;  /* a copy: tokens are valid during the call only */
  float numbers[];            /* tanh of a block, gradients of the logits of the head */
} kept_t;

typedef struct {
  int index;
  weir_parameter parameters[MOST_PARAMETERS];
  kept_t* kept;
} layer_t;

static struct {
  int sequence, vocabulary, width, blocks;
  char text[1 << 16], error[256];
} model;

static int32_t fail(const char* why) {
  snprintf(model.error, sizeof model.error, "%s", why);
  return WEIR_FAILED;
}

static int is_embed(const layer_t* layer) { return layer->index == 0; }
static int is_head(const layer_t* layer) { return layer->index == model.blocks + 1; }

/* The number behind "key": in a flat JSON object. */
static int option(const char* json, const char* key, int usual) {
  char name[32];
  snprintf(name, sizeof name, "\"%s\":", key);
  const char* found = strstr(json, name);
  return found == NULL ? usual : atoi(found + strlen(name));
}

static int32_t describe(void* self, const weir_settings* settings, const char** json) {
  (void)self;
  if (settings->precision != WEIR_F32) return fail("only --precision=fp32 is supported");
  if (settings->device >= 0) return fail("only --device=cpu is supported");
  model.sequence = settings->sequence;
  model.vocabulary = settings->vocabulary;
  model.width = option(settings->options, "width", 32);
  model.blocks = option(settings->options, "blocks", 2);
  if (model.width < 1 || model.width > 4096) return fail("width is not within 1..4096");
  if (model.blocks < 1 || model.blocks > 64) return fail("blocks is not within 1..64");
  const int t = model.sequence, v = model.vocabulary, c = model.width;
  char* to = model.text;
  char* const end = model.text + sizeof model.text;
  to += snprintf(to, (size_t)(end - to),
                 "{\"name\": \"two-layers\", \"engine\": \"C\", \"layers\": ["
                 "{\"id\": \"embed\", \"kind\": \"embed\", \"outputValues\": %lld, \"needsInputs\": true,"
                 " \"stashBytesPerSample\": %d, \"parameters\": [{\"name\": \"table\", \"shape\": [%d, %d]}]}",
                 (long long)t * c, 4 * t, v, c);
  for (int i = 0; i < model.blocks; ++i) {
    to += snprintf(to, (size_t)(end - to),
                   ", {\"id\": \"block%d\", \"kind\": \"block\", \"outputValues\": %lld,"
                   " \"stashBytesPerSample\": %lld, \"parameters\": [{\"name\": \"block%d.weight\","
                   " \"shape\": [%d, %d]}, {\"name\": \"block%d.bias\", \"shape\": [%d]}]}",
                   i, (long long)t * c, 4LL * t * c, i, c, c, i, c);
  }
  snprintf(to, (size_t)(end - to),
           ", {\"id\": \"head\", \"kind\": \"head\", \"needsTargets\": true, \"stashBytesPerSample\": %lld,"
           " \"parameters\": [{\"name\": \"head\", \"shape\": [%d, %d]}]}]}",
           4LL * t * v, v, c);
  *json = model.text;
  return WEIR_OK;
}

static int32_t bind(void* self, int32_t index, const weir_parameter* parameters, uint32_t count,
                    void** bound) {
  (void)self;
  layer_t* layer = calloc(1, sizeof *layer);
  if (layer == NULL) return WEIR_NO_MEMORY;
  layer->index = index;
  memcpy(layer->parameters, parameters, count * sizeof *parameters);
  *bound = layer;
  return WEIR_OK;
}

/* Numbers that depend on layer and parameter alone, within +-0.2. */
static int32_t initial(void* self, void* bound, uint32_t parameter, float* values, uint64_t count) {
  (void)self;
  uint64_t state = 1 + 1000003ULL * (uint64_t)((layer_t*)bound)->index + parameter;
  const int is_bias = parameter == 1;
  for (uint64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    values[i] = is_bias ? 0 : 0.4F * ((float)(state >> 40) / (float)(1 << 24) - 0.5F);
  }
  return WEIR_OK;
}

static kept_t* keep(layer_t* layer, uint64_t ticket, size_t numbers) {
  kept_t* kept = malloc(sizeof *kept + numbers * sizeof(float));
  if (kept == NULL) return NULL;
  *kept = (kept_t){.ticket = ticket, .next = layer->kept};
  layer->kept = kept;
  return kept;
}

static kept_t* find(const layer_t* layer, uint64_t ticket) {
  kept_t* kept = layer->kept;
  while (kept != NULL && kept->ticket != ticket) kept = kept->next;
  return kept;
}

static void drop(void* self, void* bound, uint64_t ticket) {
  (void)self;
  for (kept_t** at = &((layer_t*)bound)->kept; *at != NULL; at = &(*at)->next) {
    kept_t* const kept = *at;
    if (kept->ticket != ticket) continue;
    *at = kept->next;
    free((void*)kept->own_tokens);
    free(kept);
    return;
  }
}

/* y (rows, outputs) = x (rows, inputs) w (outputs, inputs)^T */
static void product(int rows, int inputs, int outputs, const float* x, const float* w, float* y) {
  for (int r = 0; r < rows; ++r) {
    for (int o = 0; o < outputs; ++o) {
      float sum = 0;
      for (int i = 0; i < inputs; ++i) sum += x[r * inputs + i] * w[o * inputs + i];
      y[r * outputs + o] = sum;
    }
  }
}

/* dw += dy^T x, dx = dy w (added where `add`) */
static void product_backward(int rows, int inputs, int outputs, const float* x, const float* w,
                             const float* dy, float* dw, float* dx, int add) {
  for (int r = 0; r < rows; ++r) {
    if (!add) memset(dx + r * inputs, 0, (size_t)inputs * sizeof(float));
    for (int o = 0; o < outputs; ++o) {
      const float g = dy[r * outputs + o];
      for (int i = 0; i < inputs; ++i) {
        dw[o * inputs + i] += g * x[r * inputs + i];
        dx[r * inputs + i] += g * w[o * inputs + i];
      }
    }
  }
}

static int32_t forward_embed(layer_t* layer, const weir_forward* pass, int rows) {
  const int c = model.width;
  const float* table = layer->parameters[0].value;
  float* y = pass->output;
  for (int r = 0; r < rows; ++r) {
    memcpy(y + r * c, table + (size_t)pass->inputs[r] * c, (size_t)c * sizeof(float));
  }
  if (pass->ticket == 0) return WEIR_OK;
  kept_t* kept = keep(layer, pass->ticket, 0);
  int32_t* tokens = malloc((size_t)rows * sizeof *tokens);
  if (kept == NULL || tokens == NULL) {
    free(tokens);
    if (kept != NULL) drop(NULL, layer, pass->ticket);
    return WEIR_NO_MEMORY;
  }
  memcpy(tokens, pass->inputs, (size_t)rows * sizeof *tokens);
  kept->own_tokens = tokens;
  return WEIR_OK;
}

static int32_t forward_block(layer_t* layer, const weir_forward* pass, int rows) {
  const int c = model.width;
  const float *x = pass->input, *bias = layer->parameters[1].value;
  float* y = pass->output;
  kept_t* kept = pass->ticket == 0 ? NULL : keep(layer, pass->ticket, (size_t)rows * (size_t)c);
  if (pass->ticket != 0 && kept == NULL) return WEIR_NO_MEMORY;
  if (kept != NULL) kept->input = x;
  product(rows, c, c, x, layer->parameters[0].value, y);
  for (int i = 0; i < rows * c; ++i) {
    const float t = tanhf(y[i] + bias[i % c]);
    if (kept != NULL) kept->numbers[i] = t;
    y[i] = x[i] + t;
  }
  return WEIR_OK;
}

static int32_t forward_head(layer_t* layer, const weir_forward* pass, int rows) {
  const int c = model.width, v = model.vocabulary;
  const size_t numbers = (size_t)rows * (size_t)v;
  kept_t* kept = pass->ticket == 0 ? NULL : keep(layer, pass->ticket, numbers);
  float* logits = kept != NULL ? kept->numbers : malloc(numbers * sizeof(float));
  if (logits == NULL) return WEIR_NO_MEMORY;
  if (kept != NULL) kept->input = pass->input;
  product(rows, c, v, pass->input, layer->parameters[0].value, logits);
  double loss = 0;
  for (int r = 0; r < rows; ++r) {
    float* row = logits + (size_t)r * (size_t)v;
    float most = row[0], sum = 0;
    for (int i = 1; i < v; ++i) most = row[i] > most ? row[i] : most;
    for (int i = 0; i < v; ++i) sum += expf(row[i] - most);
    loss += log((double)sum) + (double)most - (double)row[pass->targets[r]];
    for (int i = 0; i < v; ++i) row[i] = pass->loss_scale * expf(row[i] - most) / sum;
    row[pass->targets[r]] -= pass->loss_scale;
  }
  *pass->loss = loss;
  if (kept == NULL) free(logits);
  return WEIR_OK;
}

static int32_t forward(void* self, void* bound, const weir_forward* pass) {
  (void)self;
  layer_t* layer = bound;
  const int rows = pass->samples * model.sequence;
  if (is_embed(layer)) return forward_embed(layer, pass, rows);
  if (is_head(layer)) return forward_head(layer, pass, rows);
  return forward_block(layer, pass, rows);
}

static int32_t backward(void* self, void* bound, const weir_backward* pass) {
  (void)self;
  layer_t* layer = bound;
  kept_t* kept = find(layer, pass->ticket);
  if (kept == NULL) return fail("a backward without a forward");
  const int rows = pass->samples * model.sequence, c = model.width;
  const float* dy = pass->output_gradient;
  float* dw = layer->parameters[0].gradient;
  if (is_embed(layer)) {
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < c; ++i) dw[(size_t)kept->own_tokens[r] * c + i] += dy[r * c + i];
    }
    return WEIR_OK;
  }
  if (is_head(layer)) {
    product_backward(rows, c, model.vocabulary, kept->input, layer->parameters[0].value,
                     kept->numbers, dw, pass->input_gradient, 0);
    return WEIR_OK;
  }
  /* numbers: t becomes dy (1 - t^2), which a second backward of this ticket must not see */
  for (int i = 0; i < rows * c; ++i) {
    const float t = kept->numbers[i];
    kept->numbers[i] = dy[i] * (1 - t * t);
    layer->parameters[1].gradient[i % c] += kept->numbers[i];
  }
  memcpy(pass->input_gradient, dy, pass->input_gradient_bytes);
  product_backward(rows, c, c, kept->input, layer->parameters[0].value, kept->numbers, dw,
                   pass->input_gradient, 1);
  return WEIR_OK;
}

static void unbind(void* self, void* bound) {
  (void)self;
  free(bound);
}

static const char* error(void* self) {
  (void)self;
  return model.error;
}

const weir_layers* weir_open(uint32_t version) {
  static const weir_layers layers = {.size = sizeof(weir_layers),
                                     .version = WEIR_LAYERS_VERSION,
                                     .describe = describe,
                                     .bind = bind,
                                     .initial = initial,
                                     .forward = forward,
                                     .backward = backward,
                                     .drop = drop,
                                     .unbind = unbind,
                                     .error = error};
  return version == WEIR_LAYERS_VERSION ? &layers : NULL;
}
