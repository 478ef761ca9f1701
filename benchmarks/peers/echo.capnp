@0xc3a1f5d27be94806;

interface Echo {
  back @0 (data :Data) -> (data :Data);
  take @1 (data :Data) -> (bytes :UInt64);
}
