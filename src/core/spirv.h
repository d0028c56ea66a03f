// SPDX-License-Identifier: Apache-2.0
//
// spirv: the numbers of SPIR-V that quern writes or reads, and the device features that a module
// requires. Names follow the specification, in our spelling: OpTypeVoid is SPV_TYPE_VOID.
#ifndef QUERN_CORE_SPIRV_H
#define QUERN_CORE_SPIRV_H

#include "core/core.h"

enum spirv_op {
#define X(name, number) SPV_##name = number,
#include "core/spirv.inc"
#undef X
};

enum { SPIRV_MAGIC = 0x07230203, SPIRV_HEADER = 5 /* words before the first instruction */ };

enum spirv_capability {
    SPV_CAP_SHADER = 1,
    SPV_CAP_F16 = 9,
    SPV_CAP_F64 = 10,
    SPV_CAP_I64 = 11,
    SPV_CAP_I16 = 22,
    SPV_CAP_I8 = 39,
    SPV_CAP_SUBGROUP = 61,
    SPV_CAP_SUBGROUP_VOTE = 62,
    SPV_CAP_SUBGROUP_ARITHMETIC = 63,
    SPV_CAP_SUBGROUP_BALLOT = 64,
    SPV_CAP_SUBGROUP_SHUFFLE = 65,
    SPV_CAP_SUBGROUP_SHUFFLE_RELATIVE = 66,
    SPV_CAP_STORAGE_16 = 4433,
    SPV_CAP_STORAGE_8 = 4448,
    SPV_CAP_DENORM_PRESERVE = 4464,
    SPV_CAP_KEEP_NAN = 4466, /* SignedZeroInfNanPreserve */
    SPV_CAP_ROUND_EVEN = 4467, /* RoundingModeRTE */
    SPV_CAP_VULKAN_MEMORY = 5345,
    SPV_CAP_MATRIX = 6022, /* CooperativeMatrixKHR */
};

enum spirv_storage { /* storage classes */
    SPV_IN_INPUT = 1,
    SPV_IN_UNIFORM = 2,
    SPV_IN_WORKGROUP = 4,
    SPV_IN_FUNCTION = 7,
    SPV_IN_PUSH = 9,
    SPV_IN_BUFFER = 12, /* StorageBuffer */
};

enum spirv_decoration {
    SPV_DEC_BLOCK = 2,
    SPV_DEC_ARRAY_STRIDE = 6,
    SPV_DEC_BUILTIN = 11,
    SPV_DEC_RESTRICT = 19,
    SPV_DEC_ALIASED = 20,
    SPV_DEC_NON_WRITABLE = 24,
    SPV_DEC_BINDING = 33,
    SPV_DEC_SET = 34,
    SPV_DEC_OFFSET = 35,
    SPV_DEC_NO_CONTRACTION = 42,
};

enum spirv_builtin {
    SPV_BI_WORKGROUP_ID = 26,
    SPV_BI_LOCAL_ID = 27,
    SPV_BI_SUBGROUP_ID = 40,
    SPV_BI_LANE = 41, /* SubgroupLocalInvocationId */
};

enum spirv_mode { /* execution modes */
    SPV_MODE_LOCAL_SIZE = 17,
    SPV_MODE_DENORM_PRESERVE = 4459,
    SPV_MODE_KEEP_NAN = 4461,
    SPV_MODE_ROUND_EVEN = 4462,
};

/* What a module declares. Slices point into its bytes. */
enum { SPIRV_MAX_ENTRIES = 64, SPIRV_MAX_LIST = 64 };

struct spirv_entry {
    struct str name;
    u32 local[3]; /* threads of a group */
};

struct spirv_info {
    u32 version;                                   /* as caps.spirv: 10, 13 ... */
    struct spirv_entry entry[SPIRV_MAX_ENTRIES];   /* compute shaders, in order */
    u32 n_entry;
    u32 capability[SPIRV_MAX_LIST], n_capability;  /* enum spirv_capability and others */
    struct str extension[SPIRV_MAX_LIST];          /* "SPV_KHR_..." */
    u32 n_extension;
    u32 n_binding;                                 /* of set 0: the largest binding + 1 */
    u32 n_set;                                     /* descriptor sets: the largest + 1 */
    i64 push_bytes;                                /* of push constants */
    i64 shared_bytes;                              /* of shared arrays, packed tightly; of one entry */
    u32 subgroup;                                  /* required size of a subgroup, 0: any */
};

bool spirv_is_module(struct str bytes); /* by its first word */
/* Reads a module of the machine's byte order. Never reads outside of it; the result has been
   bounded, not validated. No SPIR-V instruction states the required subgroup size: quern writes it
   as the OpString "quern subgroup=32". */
bool spirv_read_info(struct spirv_info *info, struct str module, struct err *e);
bool spirv_has_capability(const struct spirv_info *info, enum spirv_capability c);

#endif
