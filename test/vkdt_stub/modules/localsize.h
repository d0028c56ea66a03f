// SPDX-License-Identifier: Apache-2.0
#define DT_LOCAL_SIZE_X 8
#define DT_LOCAL_SIZE_Y 8
