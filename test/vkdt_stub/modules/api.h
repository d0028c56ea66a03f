// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for vkdt's module interface, as far as exported modules use it: the same names with
// the same meaning, written from the description of the interface. The graph is a list of nodes;
// host.c plays the program that the module is loaded by.
#pragma once
#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "localsize.h"

typedef uint64_t dt_token_t; // up to eight characters, the first one lowest
static inline dt_token_t
dt_token(const char *z)
{
  dt_token_t t = 0;
  for(int i=0;i<8 && z[i];i++) t |= (dt_token_t)(unsigned char)z[i] << (8*i);
  return t;
}

typedef struct dt_roi_t { uint32_t full_wd, full_ht, wd, ht, marker; } dt_roi_t;
typedef struct dt_cid_t { int16_t i, c; } dt_cid_t;
static const dt_cid_t s_cid_unset = {-1, -1};
static inline int dt_cid_unset(dt_cid_t a) { return a.i == -1 && a.c == -1; }
static inline dt_cid_t dt_cid(int i, int c) { return (dt_cid_t){(int16_t)i, (int16_t)c}; }

enum { DT_MAX_CONNECTORS = 30, STUB_MAX_NODES = 4000 };

typedef struct dt_connector_t
{
  dt_token_t name, type, chan, format;
  dt_cid_t   connected;   // inputs: the output; owners: .i counts the inputs
  dt_cid_t   associated;  // nodes: the module's connector it stands for; modules: the node's
  dt_cid_t   bypass;
  dt_roi_t   roi;
  uint64_t   ssbo_offset; // bytes into the buffer
  uint64_t   mem;         // host.c: 1 + index of the memory it owns
}
dt_connector_t;

typedef struct dt_graph_t dt_graph_t;
typedef struct dt_module_so_t { int num_params; } dt_module_so_t;
typedef struct dt_module_t
{
  dt_module_so_t *so;
  dt_graph_t     *graph;
  dt_connector_t  connector[DT_MAX_CONNECTORS];
  int             num_connectors;
  int32_t         param; // the one parameter a module may have
}
dt_module_t;

typedef struct dt_node_t
{
  dt_token_t     name, kernel;
  dt_module_t   *module;
  dt_connector_t connector[DT_MAX_CONNECTORS];
  int            num_connectors;
  uint32_t       wd, ht, dp;
  uint32_t       push_constant[64];
  size_t         push_constant_size;
}
dt_node_t;

struct dt_graph_t
{
  dt_module_t *module;
  uint32_t     num_modules;
  dt_node_t   *node;
  uint32_t     num_nodes, max_nodes;
  const char  *gui_msg;
  char         gui_msg_buf[100];
};

typedef struct dt_read_source_params_t { int c, a; dt_node_t *node; } dt_read_source_params_t;
typedef uint32_t dt_graph_run_t;
enum { s_graph_run_none = 0 };
#define s_graph_run_all ((dt_graph_run_t)-1)

typedef struct qvk_t { uint32_t vendorID, subgroup_size; int coopmat_supported; } qvk_t;
extern qvk_t qvk;

// of the program
FILE *dt_graph_open_resource(const dt_graph_t *graph, uint32_t frame, const char *name, const char *mode);
int dt_node_connect(dt_graph_t *graph, int n0, int c0, int n1, int c1);

#define CONN(A) do { \
  int err_ = (A); \
  if(err_) fprintf(stderr, "%s:%d: connection failed: %d\n", __FILE__, __LINE__, err_); \
  assert(!err_); \
} while(0)
#define dt_no_roi UINT64_C(-1)

static inline int
dt_module_get_param(const dt_module_so_t *so, dt_token_t name)
{
  return so->num_params && name == dt_token("model") ? 0 : -1;
}
static inline const int32_t*
dt_module_param_int(const dt_module_t *module, int id)
{
  return id == 0 ? &module->param : 0;
}

static inline int
dt_node_add(dt_graph_t *graph, dt_module_t *module, const char *name, const char *kernel,
    const int wd, const int ht, const int dp, const int pc_size, const int *pc, const int nc, ...)
{
  if(graph->num_nodes >= graph->max_nodes) return -1;
  dt_node_t *n = graph->node + graph->num_nodes;
  memset(n, 0, sizeof(*n));
  n->name = dt_token(name);
  n->kernel = dt_token(kernel);
  n->module = module;
  n->num_connectors = nc;
  n->wd = wd; n->ht = ht; n->dp = dp;
  n->push_constant_size = pc_size;
  assert(pc_size >= 0 && (size_t)pc_size <= sizeof(n->push_constant) && nc <= DT_MAX_CONNECTORS);
  assert(strlen(name) <= 8 && strlen(kernel) <= 8);
  if(pc) memcpy(n->push_constant, pc, pc_size);
  va_list ap;
  va_start(ap, nc);
  for(int i=0;i<nc;i++)
  {
    dt_connector_t *c = n->connector + i;
    c->name   = dt_token(va_arg(ap, const char*));
    c->type   = dt_token(va_arg(ap, const char*));
    c->chan   = dt_token(va_arg(ap, const char*));
    c->format = dt_token(va_arg(ap, const char*));
    const dt_roi_t *roi = va_arg(ap, const dt_roi_t*);
    const int owns = c->type == dt_token("write") || c->type == dt_token("source");
    assert(owns == ((uint64_t)(uintptr_t)roi != dt_no_roi));
    if(owns) c->roi = *roi;
    else     c->connected = s_cid_unset;
    c->associated = s_cid_unset;
  }
  va_end(ap);
  return graph->num_nodes++;
}

static inline void
dt_connector_copy(dt_graph_t *graph, dt_module_t *module, int mc, int nid, int nc)
{
  dt_connector_t *m = module->connector + mc, *n = graph->node[nid].connector + nc;
  m->associated = dt_cid(nid, nc);
  n->associated = dt_cid((int)(module - graph->module), mc);
  n->format = m->format;
  n->roi = m->roi;
  n->connected = m->connected;
}

static inline void
dt_connector_bypass(dt_graph_t *graph, dt_module_t *module, int in, int out)
{
  module->connector[out].bypass = dt_cid((int)(module - graph->module), in);
  module->connector[in].bypass  = dt_cid((int)(module - graph->module), out);
}
