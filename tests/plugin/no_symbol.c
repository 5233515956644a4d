/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is no plugin. */
int not_a_plugin(void);
int not_a_plugin(void) {
  return 0;
}
