-- What each replica of a gateway saw of the answers of each model at each upstream, for the other replicas. `route` is a digest
-- of the two names, which stand in `body`.
CREATE TABLE route_health (
  replica TEXT NOT NULL,
  route TEXT NOT NULL,
  written DOUBLE PRECISION NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (replica, route)
);
CREATE INDEX route_health_by_age ON route_health (written);
