-- Built after the seed, so that loading stays fast.

CREATE INDEX ON addresses (customer_id);
CREATE INDEX ON orders (address_id);
CREATE INDEX ON order_items (sku);
CREATE INDEX ON payments (order_id);
CREATE INDEX ON reviews (sku);
