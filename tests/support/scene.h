/* A scheduling problem that a test builds: models with their profiles, and a fleet. scene_start
 * first, then models with their points and devices in any order; fields may be changed afterwards.
 * A scene is large: allocate it with malloc, release it with free. Include cmocka before this
 * header. */
#ifndef WEFT_TESTS_SUPPORT_SCENE_H
#define WEFT_TESTS_SUPPORT_SCENE_H

#include "scheduler/scheduler.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SCENE_MODELS = 24, SCENE_POINTS = 160, SCENE_DEVICES = 4 };

typedef struct scene {
    char name[SCENE_MODELS][16];
    weft_demand demand[SCENE_MODELS];
    weft_demands demands;
    weft_fleet_device device[SCENE_DEVICES];
    weft_fleet fleet;
    weft_problem problem;
    weft_profile_point point[SCENE_MODELS][SCENE_POINTS];
} scene;

/* An empty scene: no models, no devices, every option at its default. */
static inline void scene_start(scene *sc)
{
    memset(sc, 0, offsetof(scene, point));
    sc->demands.at = sc->demand;
    sc->fleet = (weft_fleet){.file = "fleet", .device = sc->device};
    sc->problem = (weft_problem){.demands = &sc->demands, .fleet = &sc->fleet};
}

/* Adds a model without profile points and returns its index; name NULL: m0, m1 .. in order. */
static inline size_t scene_add_model(scene *sc, const char *name, double slo_us, double rate_per_s)
{
    size_t m = sc->demands.n++;
    assert_true(m < SCENE_MODELS);
    if (name)
        snprintf(sc->name[m], sizeof sc->name[m], "%s", name);
    else
        snprintf(sc->name[m], sizeof sc->name[m], "m%zu", m);
    sc->demand[m] = (weft_demand){.model = sc->name[m],
                                  .slo_us = slo_us,
                                  .rate_per_s = rate_per_s,
                                  .profile = {.point = sc->point[m], .n = 0}};
    return m;
}

/* Adds a measured profile point of one process to model m. The point stays in the scene. */
static inline weft_profile_point *scene_add_point(scene *sc, size_t m, const char *device,
                                                  const char *slice, uint32_t batch, double time_us,
                                                  double mem_bytes)
{
    weft_profile *profile = &sc->demand[m].profile;
    assert_true(profile->n < SCENE_POINTS);
    weft_profile_point *p = &sc->point[m][profile->n++];
    *p = (weft_profile_point){.batch = batch, .procs = 1};
    snprintf(p->device, sizeof p->device, "%s", device);
    snprintf(p->slice, sizeof p->slice, "%s", slice);
    snprintf(p->cost.source, sizeof p->cost.source, "measured");
    p->cost.time_us = time_us;
    p->cost.mreq_bytes = (uint64_t)mem_bytes;
    return p;
}

/* scene_add_point for an MPS share of `percent`; 100: the whole device. */
static inline weft_profile_point *scene_add_share(scene *sc, size_t m, const char *device,
                                                  uint32_t percent, uint32_t batch, double time_us,
                                                  double mem_bytes)
{
    char slice[16] = "";
    if (percent < 100)
        snprintf(slice, sizeof slice, "%u%%", percent);
    weft_profile_point *p = scene_add_point(sc, m, device, slice, batch, time_us, mem_bytes);
    p->share = percent / 100.0;
    return p;
}

/* Adds devices of one type to the fleet. */
static inline void scene_add_device(scene *sc, weft_fleet_device device)
{
    assert_true(sc->fleet.n_device < SCENE_DEVICES);
    sc->device[sc->fleet.n_device++] = device;
}

#endif
