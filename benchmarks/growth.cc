#include "growth.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include <fmt/format.h>

namespace holdfast::bench {

Curve& Growth::curve_of(const std::string& what, const std::string& unit, int digits) {
  const auto found = std::find_if(curves_.begin(), curves_.end(), [&](const Curve& one) { return one.what == what; });
  if (found != curves_.end()) return *found;
  return curves_.emplace_back(Curve{.what = what, .unit = unit, .over = over_, .points = {}, .digits = digits});
}

void Growth::add(const std::string& what, const std::string& unit, size_t size, double value, int digits) {
  std::vector<Curve::Point>& points = curve_of(what, unit, digits).points;
  const auto place = std::lower_bound(points.begin(), points.end(), static_cast<double>(size),
                                      [](const Curve::Point& point, double wanted) { return point.size < wanted; });
  if (place != points.end() && place->size == static_cast<double>(size)) {
    place->rounds.push_back(value);
  } else {
    points.insert(place, {static_cast<double>(size), {value}});
  }
}

void Growth::tell(Report& report) const {
  std::set<double> sizes;
  for (const Curve& curve : curves_) {
    for (const Curve::Point& point : curve.points) sizes.insert(point.size);
  }
  fmt::print("  {:<70}", over_);
  for (const double size : sizes) fmt::print(" {:>9.0f}", size);
  fmt::print("  exponent\n");
  for (const Curve& curve : curves_) {
    fmt::print("  {:<70}", fmt::format("{} ({})", curve.what, curve.unit));
    for (const double size : sizes) {
      const auto point = std::find_if(curve.points.begin(), curve.points.end(),
                                      [&](const Curve::Point& one) { return one.size == size; });
      fmt::print(" {:>9}",
                 point == curve.points.end() ? "-" : fmt::format("{:.{}f}", median(point->rounds), curve.digits));
    }
    fmt::print("  {:>8}\n", exponent_text(curve));
    report.keep(curve);
  }
  std::fflush(stdout);
}

}  // namespace holdfast::bench
