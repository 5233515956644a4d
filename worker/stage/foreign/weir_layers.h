/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of one's own in C, C++, Rust or any language with C functions: for weir-worker --plugin,
   or for a program that loads libweir-worker.so. README.md beside this file says what each function
   must do. Weir calls the layers; layers never call Weir. What layers say of themselves is JSON;
   what runs for each micro-batch is plain structs without padding. C11 and C++. */
#ifndef WEIR_LAYERS_H
#define WEIR_LAYERS_H

#include <stdint.h>

/* NOLINTBEGIN(readability-identifier-naming, modernize-*): C */
#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_LAYERS_VERSION = 1 };
enum { WEIR_F32 = 0, WEIR_BF16 = 1 };
/* Every other value counts as WEIR_FAILED, so a forgotten return is no success. */
enum { WEIR_OK = 1, WEIR_FAILED = 2, WEIR_NO_MEMORY = 3 };

typedef struct {                /* Weir -> describe */
  uint32_t size, version;       /* of this struct in bytes; WEIR_LAYERS_VERSION */
  int32_t sequence, vocabulary; /* tokens per sample; number of different tokens */
  int32_t precision, threads;   /* of values and activations; that a call may use */
  int32_t device, training;     /* -1 = host, else the CUDA ordinal; 0 = only to be described */
  uint64_t seed;
  void* stream;                /* cudaStream_t; NULL on the host */
  const char *model, *options; /* text of --model; JSON object of --model-option */
} weir_settings;

typedef struct {   /* Weir -> bind */
  void* value;     /* count numbers of the precision */
  float* gradient; /* backward adds to it, always float32 */
  uint64_t count;
} weir_parameter;

typedef struct { /* Weir -> forward */
  uint32_t size;
  int32_t samples;
  int64_t step;
  uint64_t seed;    /* of all random numbers of this pass */
  uint64_t ticket;  /* names what is kept for backward; 0 = keep nothing */
  int32_t training; /* 0 = evaluation: no dropout */
  float loss_scale; /* last layer: 1 / tokens of the global batch */
  const int32_t *inputs,
      *targets;      /* (samples, sequence); NULL except in the first and last layer */
  const void* input; /* NULL in the first layer */
  uint64_t input_bytes;
  void* output; /* NULL in the last layer */
  uint64_t output_bytes;
  double* loss; /* last layer: the sum over the tokens, on the host; else NULL */
} weir_forward;

typedef struct { /* Weir -> backward */
  uint32_t size;
  int32_t samples;
  uint64_t ticket;
  const void* output_gradient; /* NULL in the last layer */
  uint64_t output_gradient_bytes;
  void* input_gradient; /* replaced; NULL in the first layer */
  uint64_t input_gradient_bytes;
} weir_backward;

typedef struct {
  uint32_t size, version; /* sizeof(weir_layers), WEIR_LAYERS_VERSION */
  void* self;             /* the first argument of every call */
  int32_t (*describe)(void* self, const weir_settings* settings, const char** json);
  int32_t (*bind)(void* self, int32_t layer, const weir_parameter* parameters, uint32_t count,
                  void** bound);
  int32_t (*initial)(void* self, void* bound, uint32_t parameter, float* values, uint64_t count);
  int32_t (*forward)(void* self, void* bound, const weir_forward* pass);
  int32_t (*backward)(void* self, void* bound, const weir_backward* pass);
  void (*drop)(void* self, void* bound, uint64_t ticket);
  void (*unbind)(void* self, void* bound);
  const char* (*error)(void* self); /* of the last call that was not WEIR_OK: one line of UTF-8 */
  /* The rest may be NULL. */
  uint64_t (*memory)(void* self); /* bytes that the layers' own allocator holds; not called yet */
  void (*trim)(void* self);       /* gives back what that allocator keeps for reuse */
  void (*notice)(void* self, const char* json); /* {"event": "step", ...} after each step */
} weir_layers;

/* A plugin exports it. NULL = the plugin cannot serve that version. */
const weir_layers* weir_open(uint32_t version);

/* libweir-worker.so exports it: the worker in the process of a program that has the layers. argv[0]
   is the program's name, the rest are the options of weir-worker. Runs on the calling thread, which
   makes all calls of the layers; SIGTERM and SIGINT have other handlers meanwhile. Returns the exit
   code of the process, which should end without waiting for other threads (_exit). Once in a
   process: a second call returns 2. The table must live until the process ends. */
int32_t weir_worker_main(int32_t argc, const char* const* argv, const weir_layers* layers);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(readability-identifier-naming, modernize-*) */

#endif
