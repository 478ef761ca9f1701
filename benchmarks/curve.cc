#include "curve.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "report.h"

namespace holdfast::bench {

namespace {

// The room between two numbers, on a logarithmic axis of so many pixels.
class LogAxis {
 public:
  LogAxis(double low, double high, double from, double to)
      : low_(std::log10(low)), span_(std::max(1e-9, std::log10(high) - low_)), from_(from), to_(to) {}
  double at(double value) const { return from_ + (std::log10(value) - low_) / span_ * (to_ - from_); }

 private:
  double low_, span_, from_, to_;
};

// Whole powers of ten that hold all values between them.
std::pair<double, double> decades_around(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double first = std::floor(std::log10(*low) + 1e-9);
  const double last = std::ceil(std::log10(*high) - 1e-9);
  return {std::pow(10, first), std::pow(10, std::max(last, first + 1))};
}

}  // namespace

std::optional<double> Curve::exponent() const {
  std::vector<std::pair<double, double>> logs;
  for (const Point& point : points) {
    const double value = median(point.rounds);
    if (value > 0) logs.emplace_back(std::log(point.size), std::log(value));
  }
  if (logs.size() < 2) return std::nullopt;
  double mean_x = 0, mean_y = 0;
  for (const auto& [x, y] : logs) {
    mean_x += x / static_cast<double>(logs.size());
    mean_y += y / static_cast<double>(logs.size());
  }
  double covariance = 0, variance = 0;
  for (const auto& [x, y] : logs) {
    covariance += (x - mean_x) * (y - mean_y);
    variance += (x - mean_x) * (x - mean_x);
  }
  return covariance / variance;
}

std::string exponent_text(const Curve& curve) {
  const std::optional<double> exponent = curve.exponent();
  // Without a minus in front of zero.
  return exponent ? fmt::format("{:.2f}", std::abs(*exponent) < 0.005 ? 0 : *exponent) : "-";
}

std::string Curve::picture(const std::string& title, const std::string& system) const {
  constexpr int kWidth = 980, kHeight = 460, kLeft = 90, kRight = 40, kTop = 64, kBottom = 50;
  std::vector<double> sizes, values;
  std::vector<const Point*> drawn;
  for (const Point& point : points) {
    if (*std::min_element(point.rounds.begin(), point.rounds.end()) <= 0) continue;  // has no logarithm
    drawn.push_back(&point);
    sizes.push_back(point.size);
    values.insert(values.end(), point.rounds.begin(), point.rounds.end());
  }
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"10\" y=\"22\" font-size=\"16\">{}</text>\n<text x=\"10\" y=\"42\" fill=\"#666\">{}</text>\n"
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}; exponent {}</text>\n",
      kWidth, kHeight, escaped(fmt::format("{}: {} ({})", title, what, unit), false), escaped(system, false),
      (kLeft + kWidth - kRight) / 2, kHeight - 10, escaped(over, false), exponent_text(*this));
  if (drawn.empty()) return out + "</svg>\n";

  const auto [low, high] = decades_around(values);
  const LogAxis x(sizes.front(), sizes.back(), kLeft, kWidth - kRight);
  const LogAxis y(low, high, kHeight - kBottom, kTop);
  for (double mark = low; mark <= high * 1.001; mark *= 10) {
    out += fmt::format(
        "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#666\">{:g}</text>\n",
        kLeft, y.at(mark), kWidth - kRight, y.at(mark), kLeft - 8, y.at(mark) + 4, mark);
  }
  std::string line;
  for (const Point* point : drawn) {
    const auto [least, most] = std::minmax_element(point->rounds.begin(), point->rounds.end());
    const double middle = median(point->rounds);
    line += fmt::format("{:.1f},{:.1f} ", x.at(point->size), y.at(middle));
    out += fmt::format(
        "<text x=\"{0:.1f}\" y=\"{1}\" text-anchor=\"middle\" fill=\"#666\">{2:g}</text>\n"
        "<line x1=\"{0:.1f}\" y1=\"{3:.1f}\" x2=\"{0:.1f}\" y2=\"{4:.1f}\" stroke=\"#222\" stroke-width=\"2\"/>\n"
        "<circle cx=\"{0:.1f}\" cy=\"{5:.1f}\" r=\"4\" fill=\"#4a7ebb\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{6:.1f}\" text-anchor=\"middle\">{7:.{8}f}</text>\n",
        x.at(point->size), kHeight - kBottom + 18, point->size, y.at(*least), y.at(*most), y.at(middle),
        y.at(*most) - 10, middle, digits);
  }
  return out +
         fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#4a7ebb\" stroke-width=\"2\"/>\n</svg>\n", line);
}

}  // namespace holdfast::bench
