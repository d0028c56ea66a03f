// SPDX-License-Identifier: Apache-2.0
//
// lang_nvrtc: CUDA C++ to a cubin. Only files of this folder include this header.
#ifndef QUERN_LANG_NVRTC_H
#define QUERN_LANG_NVRTC_H

#include "lang/lang.h"

/* lang_nvrtc.c: for caps.arch "sm_70" .., by the NVRTC library if present, else by nvcc;
   ERR_SYSTEM: neither. The library ignores the time limit. */
bool nvrtc_build(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e);
/* Only names of architectures reach a compiler's command line; lang is for the message. */
bool nvidia_check_arch(const struct caps *c, const char *lang, struct err *e);
bool nvrtc_toolchain(struct buf *out, struct err *e); /* "nvrtc 13.0 -fmad=false ..." */

#endif
