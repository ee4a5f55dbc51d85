/* The methods of regions of system shared memory over gRPC. */
#include "runtime/server/grpc_int.h"
#include "runtime/server/regions.h"

#include "grpc_service.pb-c.h"

typedef Inference__SystemSharedMemoryStatusResponse status_response;
typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus region_status;
typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry region_entry;

static region_entry *put_region(weft_arena *arena, const weft_region_info *info)
{
    region_entry *e = weft_arena_alloc(arena, sizeof *e);
    region_status *s = weft_arena_alloc(arena, sizeof *s);
    inference__system_shared_memory_status_response__regions_entry__init(e);
    inference__system_shared_memory_status_response__region_status__init(s);
    s->name = weft_arena_strdup(arena, info->name);
    s->key = weft_arena_strdup(arena, info->key);
    s->offset = info->offset;
    s->byte_size = info->bytes;
    e->key = s->name;
    e->value = s;
    return e;
}

ProtobufCMessage *weft_grpc__list_regions(weft_grpc_call *call, weft_arena *arena,
                                          const ProtobufCMessage *in)
{
    const Inference__SystemSharedMemoryStatusRequest *request = (const void *)in;
    weft_region_info list[WEFT_REGIONS_MAX];
    status_response *r = weft_arena_alloc(arena, sizeof *r);
    inference__system_shared_memory_status_response__init(r);
    call->status = weft_grpc__status_of(
        weft_regions__list(call->regions, request->name, list, &r->n_regions, call->text));
    r->regions = weft_arena_array(arena, r->n_regions + 1, sizeof *r->regions);
    for (size_t i = 0; i < r->n_regions; i++)
        r->regions[i] = put_region(arena, &list[i]);
    return call->status == WEFT_GRPC_OK ? &r->base : NULL;
}

ProtobufCMessage *weft_grpc__register_region(weft_grpc_call *call, weft_arena *arena,
                                             const ProtobufCMessage *in)
{
    const Inference__SystemSharedMemoryRegisterRequest *request = (const void *)in;
    const weft_region_info info = {request->name, request->key, request->offset,
                                   request->byte_size};
    Inference__SystemSharedMemoryRegisterResponse *r = weft_arena_alloc(arena, sizeof *r);
    inference__system_shared_memory_register_response__init(r);
    call->status = weft_grpc__status_of(weft_regions__register(call->regions, &info, call->text));
    return call->status == WEFT_GRPC_OK ? &r->base : NULL;
}

/* Regions of CUDA cannot be registered, so there are none; Triton's clients clear them before they
 * register others. */
ProtobufCMessage *weft_grpc__list_no_regions(weft_grpc_call *call, weft_arena *arena,
                                             const ProtobufCMessage *in)
{
    Inference__CudaSharedMemoryStatusResponse *r = weft_arena_alloc(arena, sizeof *r);
    (void)call;
    (void)in;
    inference__cuda_shared_memory_status_response__init(r);
    return &r->base;
}

ProtobufCMessage *weft_grpc__unregister_nothing(weft_grpc_call *call, weft_arena *arena,
                                                const ProtobufCMessage *in)
{
    Inference__CudaSharedMemoryUnregisterResponse *r = weft_arena_alloc(arena, sizeof *r);
    (void)call;
    (void)in;
    inference__cuda_shared_memory_unregister_response__init(r);
    return &r->base;
}

ProtobufCMessage *weft_grpc__unregister_regions(weft_grpc_call *call, weft_arena *arena,
                                                const ProtobufCMessage *in)
{
    const Inference__SystemSharedMemoryUnregisterRequest *request = (const void *)in;
    Inference__SystemSharedMemoryUnregisterResponse *r = weft_arena_alloc(arena, sizeof *r);
    inference__system_shared_memory_unregister_response__init(r);
    call->status =
        weft_grpc__status_of(weft_regions__unregister(call->regions, request->name, call->text));
    return call->status == WEFT_GRPC_OK ? &r->base : NULL;
}
