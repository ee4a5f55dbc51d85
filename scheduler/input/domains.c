/* Failure domains: their names, where the devices of a fleet are, and what a plan keeps of a model
 * when one is lost. The i-th device of a row is in node i / per_node, rack i / per_rack and zone
 * i / per_zone. Nodes and racks have devices of one type, zones are those of all types. */
#include "scheduler/input/input.h"

#include <stdlib.h>
#include <string.h>

static const char *const domain_name[] = {"none", "node", "rack", "zone"};

const char *weft_domain_name(weft_domain domain)
{
    return domain_name[domain];
}

bool weft_domain_parse(const char *text, weft_domain *out)
{
    for (int i = WEFT_DOMAIN_NODE; i <= WEFT_DOMAIN_ZONE; i++)
        if (strcmp(text, domain_name[i]) == 0) {
            *out = (weft_domain)i;
            return true;
        }
    return false;
}

weft_location weft_fleet__location(const weft_fleet_device *row, uint32_t i, weft_arena *arena)
{
    uint32_t node = row->per_domain[WEFT_DOMAIN_NODE], rack = row->per_domain[WEFT_DOMAIN_RACK],
             zone = row->per_domain[WEFT_DOMAIN_ZONE];
    weft_location at = {0};
    if (!node)
        return at;
    at.node = weft_arena_printf(arena, "%s-%u", row->type, i / node);
    at.gpu = i % node;
    if (rack)
        at.rack = weft_arena_printf(arena, "%s-rack-%u", row->type, i / rack);
    if (zone)
        at.zone = weft_arena_printf(arena, "zone-%u", i / zone);
    return at;
}

bool weft_fleet__is_lost(const weft_fleet_device *row, uint32_t i)
{
    return row->lost_node && i / row->per_domain[WEFT_DOMAIN_NODE] == row->lost_node - 1;
}

uint32_t weft_fleet__count_lost(const weft_fleet_device *row)
{
    uint32_t per = row->per_domain[WEFT_DOMAIN_NODE];
    if (!row->lost_node)
        return 0;
    uint32_t left = row->count - (row->lost_node - 1) * per;
    return left < per ? left : per;
}

uint32_t weft_fleet_lose(weft_fleet_device *row, const char *node, weft_arena *arena)
{
    uint32_t per = row->per_domain[WEFT_DOMAIN_NODE];
    for (uint32_t i = 0; per && i < row->count; i += per) {
        weft_arena_mark mark = weft_arena_get_mark(arena);
        bool found = strcmp(weft_fleet__location(row, i, arena).node, node) == 0;
        weft_arena_reset(arena, mark);
        if (!found)
            continue;
        row->lost_node = i / per + 1;
        return weft_fleet__count_lost(row);
    }
    return 0;
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool weft_fleet__has_location(const weft_fleet_device *row, const weft_location *at,
                              weft_arena *arena)
{
    uint32_t per = row->per_domain[WEFT_DOMAIN_NODE];
    const char *dash = at->node ? strrchr(at->node, '-') : NULL;
    if (!per || !dash || at->gpu >= per || strlen(dash) > 9)
        return false;
    uint32_t i = (uint32_t)strtoul(dash + 1, NULL, 10) * per + at->gpu;
    weft_location is = weft_fleet__location(row, i, arena);
    return i < row->count && same(is.node, at->node) && same(is.rack, at->rack) &&
           same(is.zone, at->zone);
}

const char *weft_location__domain(const weft_location *at, weft_domain level)
{
    return level == WEFT_DOMAIN_NODE   ? at->node
           : level == WEFT_DOMAIN_RACK ? at->rack
           : level == WEFT_DOMAIN_ZONE ? at->zone
                                       : NULL;
}
