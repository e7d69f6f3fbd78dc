package headrace.connect;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Writes change records as JSON, and none larger than Kafka takes.
 *
 * A record that is too large loses its old row first, which nobody reads of an insert or update. If that
 * does not do, it loses its new row, too, and says how many bytes it had. Its key stays, so that the row
 * is known, and the connector goes on.
 */
public class BoundedJsonConverter extends JsonConverter {

    private int most = Integer.MAX_VALUE;

    public void configure(Map configs, boolean isKey) {
        super.configure(configs, isKey);
        Object told = configs.get("max.bytes");
        if (told != null) {
            this.most = Integer.parseInt(told.toString());
        }
    }

    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        byte[] whole = super.fromConnectData(topic, schema, value);
        if (whole == null || whole.length <= this.most || !(value instanceof Struct)) {
            return whole;
        }
        Struct record = (Struct) value;
        if (record.schema().field("after") == null) {
            return whole;
        }
        if (record.get("after") != null) {
            byte[] withoutOld = super.fromConnectData(topic, schema, without(record, false));
            if (withoutOld.length <= this.most) {
                return withoutOld;
            }
        }
        byte[] bare = super.fromConnectData(topic, schema, without(record, true));
        byte[] mark = ("{\"headrace_too_large\":" + whole.length + ",").getBytes(StandardCharsets.UTF_8);
        byte[] marked = new byte[mark.length + bare.length - 1];
        System.arraycopy(mark, 0, marked, 0, mark.length);
        System.arraycopy(bare, 1, marked, mark.length, bare.length - 1);
        return marked;
    }

    private static Struct without(Struct record, boolean newRowToo) {
        Struct copy = new Struct(record.schema());
        List fields = record.schema().fields();
        for (int i = 0; i < fields.size(); i++) {
            Field field = (Field) fields.get(i);
            String name = field.name();
            if (!name.equals("before") && !(newRowToo && name.equals("after"))) {
                copy.put(field, record.get(field));
            }
        }
        return copy;
    }
}
