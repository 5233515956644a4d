/* SPDX-License-Identifier: Apache-2.0 */
/* A program that has layers (two_layers.c) and loads the worker, as weir-torch does. Its exit code
   is the worker's. With the option --twice as last one it calls the worker again, which must fail;
   with --fork a child of it ends by SIGTERM, which is none of the worker's business. */
#define _POSIX_C_SOURCE 200809L
#include "weir_layers.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const weir_layers* inner;

/* The first step forks a child, which gets SIGTERM before it calls exec. */
static void notice(void* self, const char* json) {
  static int done = 0;
  (void)self;
  (void)json;
  if (done++ > 0) return;
  const pid_t child = fork();
  if (child == 0) {
    kill(getpid(), SIGTERM);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  fprintf(stderr, "child ended by signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(int argc, char** argv) {
  inner = weir_open(WEIR_LAYERS_VERSION);
  const char* const last = argv[argc - 1];
  const int twice = strcmp(last, "--twice") == 0, forks = strcmp(last, "--fork") == 0;
  weir_layers layers = *inner;
  if (forks) layers.notice = notice;
  argv[0] = "host";
  const int count = argc - (twice || forks ? 1 : 0);
  int code = weir_worker_main(count, (const char* const*)argv, &layers);
  if (twice) code = weir_worker_main(count, (const char* const*)argv, &layers);
  fflush(NULL);
  _exit(code);
}
