// Flows on fixed routes in SimGrid: all start at once; prints the second at which the last one ends.
//
// Standard input: "LINKS FLOWS", then per directed link "BYTES_PER_S LATENCY_S", then per flow "BYTES N LINK...".
// Each flow has two hosts of its own in a star zone: the way up from the first is the whole route, the way down to
// the second is empty. So any number of flows may take any routes over shared links.
#include <simgrid/s4u.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  long links = 0, flows = 0;
  if (std::scanf("%ld %ld", &links, &flows) != 2)
    return 2;
  auto* zone = sg4::create_star_zone("zone");
  std::vector<sg4::Link*> link(links);
  for (long i = 0; i < links; i++) {
    double rate = 0, latency = 0;
    if (std::scanf("%lf %lf", &rate, &latency) != 2)
      return 2;
    link[i] = zone->create_link("l" + std::to_string(i), rate)->set_latency(latency)->seal();
  }
  std::vector<sg4::Host*> from(flows), to(flows);
  std::vector<double> bytes(flows);
  for (long f = 0; f < flows; f++) {
    long hops = 0;
    if (std::scanf("%lf %ld", &bytes[f], &hops) != 2)
      return 2;
    std::vector<sg4::LinkInRoute> route;
    for (long h = 0; h < hops; h++) {
      long number = 0;
      if (std::scanf("%ld", &number) != 1)
        return 2;
      route.emplace_back(link[number]);
    }
    from[f] = zone->create_host("a" + std::to_string(f), 1e9)->seal();
    to[f]   = zone->create_host("b" + std::to_string(f), 1e9)->seal();
    zone->add_route(from[f]->get_netpoint(), nullptr, nullptr, nullptr, route, false);
    zone->add_route(nullptr, to[f]->get_netpoint(), nullptr, nullptr, std::vector<sg4::LinkInRoute>{}, false);
  }
  auto* starter = zone->create_host("starter", 1e9)->seal();
  zone->seal();
  sg4::Actor::create("start", starter, [&]() {
    std::vector<sg4::CommPtr> comms;
    for (long f = 0; f < flows; f++)
      comms.push_back(sg4::Comm::sendto_async(from[f], to[f], static_cast<uint64_t>(bytes[f])));
    for (auto& comm : comms)
      comm->wait();
  });
  engine.run();
  std::printf("%.9e\n", sg4::Engine::get_clock());
  return 0;
}
