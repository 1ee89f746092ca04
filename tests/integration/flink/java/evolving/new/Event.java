import org.apache.avro.Schema;
import org.apache.avro.specific.SpecificRecordBase;

/** A record without `name`, and with more; its fields are in another order. */
public class Event extends SpecificRecordBase {
    public static final Schema SCHEMA$ = new Schema.Parser().parse((
            "{'type':'record','name':'Event','fields':["
                    + "{'name':'count','type':'long','default':7},"
                    + "{'name':'note','type':['null','string']},"
                    + "{'name':'id','type':'long'},"
                    + "{'name':'tier','type':{'type':'enum','name':'Tier','symbols':['GOLD','PLATINUM','BRONZE','SILVER']}},"
                    + "{'name':'tags','type':{'type':'array','items':'string'}},"
                    + "{'name':'place','type':['null',{'type':'record','name':'Place','fields':["
                    + "{'name':'zip','type':'int'},{'name':'street','type':'string'},"
                    + "{'name':'country','type':['string','null'],'default':'nowhere'}]}]},"
                    + "{'name':'counts','type':{'type':'map','values':'long'}}]}").replace('\'', '"'));

    private final Object[] values = new Object[SCHEMA$.getFields().size()];

    @Override
    public Schema getSchema() {
        return SCHEMA$;
    }

    @Override
    public Object get(int field) {
        return values[field];
    }

    @Override
    public void put(int field, Object value) {
        values[field] = value;
    }
}
